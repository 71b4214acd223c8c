"""A stored result measured again: which differences may be the machine's, and which settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.validate.cases import arm, result
from torchstone import stats
from torchstone.conductor import Settings
from torchstone.lab.recording import Recorder
from torchstone.lab.repro import (
    DRIFT,
    Reproduction,
    against,
    repro,
    settings_of,
    speedups,
)
from torchstone.lab.request import method_of, settings_from
from torchstone.lab.secrets import signature
from torchstone.records import (
    CASE_KIND,
    Outcome,
    Result,
    Statement,
    UsageError,
    Verdict,
)
from torchstone.store import open_store


def session(base_s: float, new_s: float, seed: int = 1) -> Result:
    made = result(
        arm("eager", base_s, seed=seed), arm("inductor", new_s, seed=seed + 1), arm("third", 9e-3)
    )
    return replace(made, method=replace(made.method, margin=0.02))


STORED = session(5e-3, 4e-3)


def times(new: Result) -> list[Verdict]:
    return [one.verdict for one in against(STORED, new, 0.005)]


def test_a_machine_that_runs_a_little_slower_today_is_not_called_slower_code() -> None:
    drifted = session(5.15e-3, 4.12e-3, seed=7)
    eager = against(STORED, drifted, 0.005)[0]
    assert eager.interval is not None
    assert eager.interval[0] > 1.02  # proven by the interval, which knows nothing of drift
    assert eager.verdict is Verdict.CANNOT_TELL
    assert "drift" in eager.reason
    assert eager.smallest_detectable is not None
    assert eager.smallest_detectable >= DRIFT
    inductor = speedups(STORED, drifted, 0.005)[0]
    assert (inductor.base, inductor.new) == (
        "inductor against eager (stored)",
        "inductor against eager",
    )
    assert inductor.verdict is Verdict.SAME
    assert inductor.time_ratio == pytest.approx(1.0, abs=0.005)


def test_what_is_larger_than_drift_is_told_and_still_carries_the_warning() -> None:
    slower = session(5.5e-3, 4.4e-3, seed=7)
    assert times(slower)[:2] == [Verdict.SLOWER, Verdict.SLOWER]
    assert "drift" in against(STORED, slower, 0.005)[0].reason
    assert times(session(5e-3, 4e-3, seed=7))[:2] == [Verdict.SAME, Verdict.SAME]


def test_all_processes_of_a_longer_session_count() -> None:
    """Twelve processes, the first four of them slow, against four: the numbers mean nothing."""
    parts = [arm("eager", step, seed=i) for i, step in enumerate((5.35e-3, 5e-3, 5e-3))]
    turns = [
        replace(t, replicate=t.replicate + 4 * i) for i, p in enumerate(parts) for t in p.turns
    ]
    stored, new = result(replace(parts[0], turns=tuple(turns))), result(arm("eager", seed=7))
    (there,) = against(stored, new, 0.005)
    (back,) = against(new, stored, 0.005)
    mean = (5 / 5.35) ** (4 / 12)
    for found, ratio in ((there, mean), (back, 1 / mean)):
        assert found.time_ratio == pytest.approx(ratio, rel=0.003)
        assert found.interval is not None
        assert found.interval[1] / found.interval[0] > 1.03  # so much do the twelve differ
        assert found.verdict is Verdict.CANNOT_TELL


def test_speed_ups_tell_what_times_cannot() -> None:
    """The baseline is as it was, or drifts along; the arm lost 3 %."""
    for drift in (1.0, 1.02, 1.3):
        new = session(5e-3 * drift, 4e-3 * drift * 1.03, seed=7)
        inductor, third = speedups(STORED, new, 0.005)
        assert inductor.verdict is Verdict.SLOWER
        assert inductor.time_ratio == pytest.approx(1.03, abs=0.005)
        assert inductor.interval is not None
        assert inductor.interval[0] < 1.03 < inductor.interval[1]
        assert third.time_ratio == pytest.approx(1 / drift, rel=0.01)
    gained = speedups(STORED, session(5e-3, 3.6e-3, seed=7), 0.005)[0]
    assert gained.verdict is Verdict.FASTER
    assert gained.time_ratio == pytest.approx(0.9, abs=0.005)


def test_an_arm_that_broke_has_no_speed_up() -> None:
    new = session(5e-3, 4e-3, seed=7)
    arms = (new.arms[0], replace(new.arms[1], outcome=Outcome.CRASH, turns=()), new.arms[2])
    new = replace(new, arms=arms, comparisons=stats.compare_all(arms, 0.02, 0.05, 0.0))
    broken, third = speedups(STORED, new, 0.005)
    assert (broken.verdict, broken.time_ratio) == (Verdict.CANNOT_TELL, None)
    assert third.time_ratio is not None
    single = replace(new, arms=new.arms[:1], comparisons=())
    assert speedups(single, single, 0.005) == ()


def test_no_rule_takes_an_arm_and_its_stored_self_for_twins() -> None:
    """They differ by the code of two days, which is what was asked."""
    new = session(6e-3, 4e-3, seed=7)
    done = Reproduction(STORED, new, against(STORED, new, 0.0), speedups(STORED, new, 0.0))
    assert done.against_stored[0].verdict is Verdict.SLOWER
    assert "are identical and yet" not in " ".join(c.message for c in done.combined.checks)
    assert done.against_stored[0] in done.combined.comparisons


@pytest.mark.parametrize(
    "asked",
    [
        Settings(budget_s=3.0, samples=5, seed=4),
        Settings(replicates=7, independent=True),
        Settings(within=0.03),
    ],
)
def test_settings_come_back_as_they_were_asked_for(asked: Settings) -> None:
    # What a case makes of them: it had four processes, whatever was asked.
    kept = replace(method_of(asked), replicates=4, stopped_by="budget")
    assert settings_from(kept) == asked
    statement = replace(STORED.arms[0].arm, statement=Statement("pass"))
    timed = replace(STORED.arms[0], arm=statement, loops=30)
    again = settings_of(replace(STORED, method=kept, arms=(timed,)))
    assert again == replace(asked, loops=30)


def test_a_result_that_nobody_signed_is_not_run_without_trust(tmp_path: Path) -> None:
    """Somebody's database may call its rows our own and leave everything else out."""
    mark = tmp_path / "was-run"
    spec = replace(arm().arm, statement=Statement(f"open({str(mark)!r}, 'w').close()"))
    planted = replace(STORED, arms=(replace(arm(), arm=spec, environment=None),))
    assert planted.origin == "here"
    with pytest.raises(UsageError, match="names code that would be run"):
        repro(planted, trust=False, recorder=None)
    assert not mark.exists()


def test_a_case_of_a_run_is_listed_when_it_is_measured_again(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    timed = replace(arm().arm, statement=Statement("pass"))
    short = method_of(Settings(budget_s=0.1, samples=2, replicates=1))
    case = result(replace(arm(), arm=timed), method=short, kind=CASE_KIND)
    case = replace(case, signature=signature(case.id, [timed]))
    with open_store(db) as store:
        store.save(case)
        assert list(store.list()) == []
    again = repro(case, trust=False, recorder=Recorder(db))
    with open_store(db) as store:
        assert [one.id for one in store.list()] == [again.new.id]
