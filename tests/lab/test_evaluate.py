"""Stored results evaluated again; remeasurements; peaks that were beaten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stats import synthetic
from tests.targets.support import HONEST, ROOT, settings, target, torchstone
from tests.validate.cases import arm, calibration, pair
from torchstone import validate
from torchstone.cli.options import exit_code
from torchstone.conductor import Settings
from torchstone.conductor.case import Silent
from torchstone.lab.database import validate_stored
from torchstone.lab.peaks import (
    evaluate_again,
    interrupted,
    look_again,
    merge_peaks,
    recalibrated,
    with_remeasurements,
)
from torchstone.lab.recording import Recorder
from torchstone.records import (
    ArmSpec,
    Calibration,
    Check,
    Comparison,
    Level,
    Peak,
    Result,
    Verdict,
)
from torchstone.store import open_store

EAGER, FAST = "eager", "inductor"


def stored(db: Path) -> Result:
    result = evaluate_again(pair())
    with open_store(str(db)) as store:
        store.save(result)
    return result


@pytest.fixture
def stricter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that appeared after the results were stored."""

    def evaluate(result: Result) -> Iterator[Check]:
        yield Check("brand-new", Level.FAIL, "It is not to be believed.", {}, (FAST,))

    rule = validate.FunctionRule("brand-new", "a test", evaluate)
    was = validate.evaluate
    monkeypatch.setattr(
        validate, "evaluate", lambda result: (*was(result), *validate.run_rules([rule], result))
    )


def test_the_same_rules_say_the_same(tmp_path: Path) -> None:
    result = stored(tmp_path / "a.db")
    assert result.comparisons[0].verdict is Verdict.FASTER
    (one,) = validate_stored("last", str(tmp_path / "a.db"), save=True)
    assert one.after == one.before == result
    assert one.changes == ()
    assert not one.failed


@pytest.mark.usefixtures("stricter")
def test_a_new_rule_is_heard_and_kept_beside_the_samples(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "evaluate", lambda result: ())
        result = stored(tmp_path / "a.db")
    (one,) = validate_stored(result.id, db, save=False)
    assert one.failed
    assert "brand-new (inductor): not said → fail" in one.changes
    assert "inductor against eager: faster → cannot tell" in one.changes
    with open_store(db, read_only=True) as store:
        assert store.load(result.id) == result  # not saved
    validate_stored(result.id, db, save=True)
    with open_store(db, read_only=True) as store:
        shown = store.load(result.id)
    assert shown.arms == result.arms
    assert shown.comparisons[0].verdict is Verdict.CANNOT_TELL
    assert shown.comparisons[0].time_ratio is None
    assert any(check.rule == "brand-new" for check in shown.checks)


def test_a_verdict_that_was_withheld_comes_back_when_the_rule_is_gone(tmp_path: Path) -> None:
    fine = evaluate_again(pair())
    withheld = replace(
        fine,
        checks=(Check("old-rule", Level.FAIL, "No.", {}, (FAST,)),),
        comparisons=tuple(
            replace(c, verdict=Verdict.CANNOT_TELL, time_ratio=None, interval=None, floor=None,
                    typical=None, smallest_detectable=None, reason="Withheld.")
            for c in fine.comparisons
        ),
    )  # fmt: skip
    assert evaluate_again(withheld).comparisons == fine.comparisons


def noisy(**method: object) -> Result:
    """Two arms alike, whose processes differ by a few per cent."""
    pairs = ((EAGER, 1), (FAST, 2))
    arms = [arm(name, seed=seed) for name, seed in pairs]
    spread = [
        replace(one, turns=synthetic.measurement(
            name, seed=seed, replicates=4, turns=6, process_sd=0.02).turns)
        for one, (name, seed) in zip(arms, pairs, strict=True)
    ]  # fmt: skip
    made = pair(spread[1], spread[0])
    return replace(made, method=replace(made.method, **method))  # type: ignore[arg-type]


def test_what_is_open_says_what_budget_would_decide() -> None:
    (found,) = evaluate_again(noisy(stopped_by="budget", budget_s=10.0)).comparisons
    assert found.verdict.undecided
    assert found.smallest_detectable is not None
    assert found.smallest_detectable > found.margin
    assert found.deciding_budget_s is not None
    assert found.deciding_budget_s > 10.0
    longer = evaluate_again(noisy(stopped_by="replicates", budget_s=20.0)).comparisons[0]
    assert (longer.deciding_budget_s or 0) > found.deciding_budget_s


@pytest.mark.parametrize(
    "method",
    [{"stopped_by": "precision"}, {"stopped_by": "interrupt"},
     {"stopped_by": "replicates", "asked_samples": 5}],
)  # fmt: skip
def test_no_budget_is_named_where_more_of_it_would_not_be_used(method: dict[str, object]) -> None:
    (found,) = evaluate_again(noisy(**method)).comparisons
    assert found.verdict.undecided
    assert found.deciding_budget_s is None
    assert "too small" not in found.reason


@pytest.mark.usefixtures("stricter")
def test_a_withheld_verdict_names_no_budget() -> None:
    (found,) = evaluate_again(noisy(stopped_by="budget", budget_s=10.0)).comparisons
    assert (found.verdict, found.deciding_budget_s) == (Verdict.CANNOT_TELL, None)


def test_the_command_says_what_changed_and_strict_sets_the_exit_code(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    result = evaluate_again(pair())
    bad = replace(
        result,
        arms=(result.arms[0], replace(result.arms[1], agreement=replace(
            result.arms[1].agreement, mismatch="output: error 1.0"))),  # type: ignore[type-var]
    )  # fmt: skip
    with open_store(str(db)) as store:
        store.save(bad)
    done = torchstone("validate", "last", "--db", str(db), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "output-check (inductor): ok → fail" in done.stdout
    text = "1 result evaluated by the rules of today: 1 changed, 1 not to be believed."
    assert text in done.stdout
    strict = torchstone(
        "validate", "last", "--db", str(db), "--strict", "--json", "-", cwd=tmp_path
    )
    assert strict.returncode == 1
    (entry,) = json.loads(strict.stdout)["results"]
    assert entry["failed"] is True
    assert entry["changes"] == []  # kept the first time
    assert entry["result"]["comparisons"][0]["verdict"] == "cannot tell"
    nothing = torchstone("validate", "nobody", "--db", str(db), cwd=tmp_path)
    assert nothing.returncode == 2
    assert "Traceback" not in nothing.stderr


def first_look(speedup: float) -> Comparison:
    return Comparison("slow", "fast", Verdict.FASTER, "floor", 1 / speedup, (0.1, 0.9))


@pytest.mark.slow
def test_a_second_look_has_other_inputs_and_its_own_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    slow, fast = ArmSpec("slow", target("honest", "make_slow")), ArmSpec("fast", target("honest"))
    look = look_again(slow, fast, first_look(2.0), settings(), None)
    assert look.seed != settings().seed
    assert look.outcome == "ok"
    assert look.first_speedup == 2.0
    assert look.speedup is not None
    assert look.speedup > 1.2


def test_an_arm_that_knows_only_the_first_inputs_fails_the_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    honest, knows = ArmSpec("slow", target("honest")), ArmSpec("fast", target("cheats", "constant"))
    look = look_again(honest, knows, first_look(50.0), settings(), None)
    assert look.outcome == "wrong_answer"
    assert look.speedup is None
    assert look.reason


def test_no_second_look_where_nothing_is_too_good() -> None:
    result = evaluate_again(pair())
    arms = [arm.arm for arm in result.arms]
    assert with_remeasurements(result, arms, Settings(), None) is result


class CtrlC(Silent):
    """Pressed in the part that comes after one with these words."""

    def __init__(self, words: str) -> None:
        self.words, self.now = words, False

    def phase(self, text: str) -> None:
        if self.now:
            raise KeyboardInterrupt
        self.now = self.words in text


def test_ctrl_c_in_a_second_look_keeps_the_first_and_says_so() -> None:
    fast = arm(FAST, 0.25e-3, seed=2, flops=None)
    result = evaluate_again(pair(fast, arm(flops=None)))
    assert validate.needs_remeasuring(result)
    arms = [ArmSpec(EAGER, HONEST), ArmSpec(FAST, HONEST)]
    kept = with_remeasurements(result, arms, settings(), CtrlC("measuring again"))
    assert kept.arms == result.arms
    assert kept.remeasurements == ()
    assert kept.method.stopped_by == "interrupt"
    assert exit_code(kept) == 130
    assert any("was interrupted" in check.message for check in kept.checks)


def test_screening_adopts_nothing_and_so_looks_once() -> None:
    fast = arm(FAST, 0.25e-3, seed=2, flops=None)
    result = evaluate_again(pair(fast, arm(flops=None)))
    assert validate.needs_remeasuring(result)
    arms = [ArmSpec(EAGER, HONEST), ArmSpec(FAST, HONEST)]
    screening = replace(settings(), screening=True)
    assert with_remeasurements(result, arms, screening, CtrlC("")) is result


def beaten() -> Result:
    """An arm above the peaks that are known."""
    low = calibration(compute=(Peak(1e9, 0.1, 50, dtype="fp32", threads=2),))
    result = evaluate_again(pair(calibration=low))
    assert validate.needs_recalibration(result)
    return result


def test_ctrl_c_while_a_roof_is_measured_again_keeps_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(**words: object) -> Calibration:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchstone.lab.peaks.run_calibration", pressed)
    recorder = Recorder(str(tmp_path / "kept.db"))
    try:
        kept = recalibrated(beaten(), recorder, None)
    except KeyboardInterrupt:
        pytest.fail("the measurement is lost")
    assert kept.arms == beaten().arms
    assert kept.method.stopped_by == "interrupt"
    assert kept.calibration is not None
    assert "could not be measured again: interrupted" in kept.calibration.notes[-1]
    stopped = interrupted(beaten())
    assert recalibrated(stopped, recorder, None) is stopped  # Ctrl-C has been heard already


def test_no_roof_is_measured_again_where_everything_must_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(**words: object) -> Calibration:
        pytest.fail("--total does not bound it")

    monkeypatch.setattr("torchstone.lab.peaks.run_calibration", late)
    kept = recalibrated(beaten(), Recorder(str(tmp_path / "kept.db")), None, until=1.0)
    assert kept.arms == beaten().arms
    assert kept.calibration is not None
    assert "--total leaves no time" in kept.calibration.notes[-1]


def test_a_roof_measured_again_only_rises() -> None:
    fp32, fp64 = Peak(9e10, dtype="fp32", threads=1), Peak(4e10, dtype="fp64", threads=1)
    dram = Peak(2e10, level="DRAM", threads=1)
    old = Calibration("a", "m", "f", "2026-01-01", compute=(fp32, fp64), bandwidth=(dram,))
    better, worse = replace(fp32, value=9.5e10), replace(fp64, value=1e10)
    fresh = Calibration("b", "m", "f", "2026-02-02", compute=(better, worse))
    raised = merge_peaks(old, fresh)
    assert raised.id == "b"
    assert [peak.value for peak in raised.compute] == [9.5e10, 4e10]
    assert raised.bandwidth == old.bandwidth
    assert "2026-02-02" in raised.notes[-1]
