"""The course of a case: what is planned, when it stops, who runs beside whom, who tries again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stats.synthetic import measurement
from tests.targets.support import HONEST, run_arms
from torchstone import stats
from torchstone.conductor import Settings, run
from torchstone.conductor.case import CaseProgress
from torchstone.conductor.launch import Launcher
from torchstone.conductor.state import ArmState
from torchstone.conductor.turn_scheduler import (
    LEAST_TURNS,
    MOST_TURNS,
    Plan,
    cycle_seconds,
    make_plan,
    samples_per_turn,
)
from torchstone.conductor.worker import ArmEnded
from torchstone.measure.channel import SoloReport
from torchstone.measure.turns import Turns
from torchstone.records import (
    ArmSpec,
    Environment,
    Memory,
    Outcome,
    OutcomeDetail,
    UsageError,
    WarmUp,
)
from torchstone.store.codec import MAX_SAMPLES

LEAST_REPLICATES, MOST_REPLICATES = Settings().does.least_processes, Settings().does.most_processes
FICKLE = """
from pathlib import Path

BUILT = Path(__file__).with_suffix(".built")

def draw(seed):
    return ([(seed * 31 + i * 7) % 1009 for i in range(400)],)

def squares(values):
    return sum(value * value for value in values)

def make():
    with BUILT.open("a") as file:
        file.write(".")
    if len(BUILT.read_text()) == {time}:
        raise {error}
    return squares, draw
"""


def solo(peak: int = 0, start: int = 0, before: int = 0, probe_bits: int = 64) -> SoloReport:
    return SoloReport(
        environment=Environment("m"),
        first_call_ns=1,
        warm_up=WarmUp(1, (1,), True),
        loops=1,
        step_ns=5_000_000,
        memory=Memory("VmHWM", peak, None, before, start),
        probe_bits=probe_bits,
    )


def state(name: str, spread: float = 0.0, replicates: int = 4, seed: int = 1) -> ArmState:
    """An arm whose processes differ by that much."""
    made = measurement(name, seed=seed, replicates=replicates, process_sd=spread)
    return ArmState(ArmSpec(name, HONEST), solo=solo(), turns=list(made.turns))


@pytest.mark.parametrize(
    ("asked", "start_s", "cycle_s", "planned"),
    [
        ({"budget_s": 30.0}, 1.0, 0.1, Plan(MOST_REPLICATES, 25)),
        ({"budget_s": 30.0}, 3.0, 0.1, Plan(6, 50)),
        ({"budget_s": 5.0}, 10.0, 0.5, Plan(LEAST_REPLICATES, LEAST_TURNS)),
        ({"budget_s": 1e6}, 1.0, 0.01, Plan(MOST_REPLICATES, MOST_TURNS)),
        ({"budget_s": 30.0, "replicates": 3}, 1.0, 0.1, Plan(3, 100)),
        ({"budget_s": 30.0, "replicates": 40}, 1.0, 0.4, Plan(40, LEAST_TURNS)),
        ({"budget_s": 30.0, "samples": 5}, 3.0, 0.1, Plan(6, 1)),
    ],
)
def test_the_budget_is_for_turns_and_starts_say_how_many_processes(
    asked: dict[str, float], start_s: float, cycle_s: float, planned: Plan
) -> None:
    assert make_plan(Settings(**asked), start_s, cycle_s) == planned  # type: ignore[arg-type]


class Longest(random.Random):
    """Every turn as long as it may become."""

    def randint(self, a: int, b: int) -> int:
        return b


@pytest.mark.parametrize("sample_ns", [50, 15_000, 60_000, 250_000, 10_000_000])
@pytest.mark.parametrize("replicates", [None, 1, 100])
@pytest.mark.parametrize("budget_s", [5.0, 3600.0])
def test_what_is_planned_can_be_stored(
    sample_ns: int, replicates: int | None, budget_s: float
) -> None:
    """Wall time, CPU time and at most one probe for each sample, and warm-up beside them."""
    asked = Settings(budget_s=budget_s, replicates=replicates)
    plan = make_plan(asked, 0.1, cycle_seconds(asked, [sample_ns] * 2))
    most = samples_per_turn(asked, plan, sample_ns, Longest())
    assert plan.replicates * plan.turns * most * 3 < 0.7 * MAX_SAMPLES


def test_turns_of_the_usual_samples_are_whole_whatever_the_budget() -> None:
    asked = Settings()
    longest = samples_per_turn(asked, Plan(MOST_REPLICATES, MOST_TURNS), 250_000, Longest())
    assert longest == 1.5 * asked.turn_ns / 250_000


def test_more_samples_than_can_be_kept_are_refused_before_anything_runs() -> None:
    assert make_plan(Settings(samples=400_000), 0.1, 0.1) == Plan(5, 1)
    assert make_plan(Settings(samples=500_000), 0.1, 0.1) == Plan(LEAST_REPLICATES, 1)
    with pytest.raises(UsageError, match="more than can be kept") as caught:
        run_arms(ArmSpec("none", "nowhere.py:make"), samples=600_000, replicates=None)
    assert caught.value.remedy == "Ask for at most 500000."
    with pytest.raises(UsageError, match="more than can be kept"):
        run_arms(ArmSpec("none", "nowhere.py:make"), samples=30_000, replicates=100)


def stopped(states: list[ArmState], index: int, **asked: float) -> tuple[str, float]:
    """Why a case of eight processes stops after so many, and the alpha of its intervals."""
    progress = CaseProgress()
    progress.looks = stats.looks(8)
    asked_for = Settings(**asked)  # type: ignore[arg-type]
    found = run.stopped_by(states, asked_for, Plan(8, 6), progress, index)
    return found, progress.alpha


def test_precision_ends_a_case_at_a_preset_look_and_nowhere_else() -> None:
    precise = [state("base"), state("new", seed=2)]
    first = stats.looks(8)[0]
    found, alpha = stopped(precise, first)
    assert found == "precision"
    assert alpha == stats.alpha_at(0, stats.looks(8), 0.05) < 0.05
    between = next(i for i in range(1, 8) if i not in stats.looks(8))
    assert stopped(precise, between) == ("", 0.05)
    assert stopped([state("base"), state("new", 0.2, seed=2)], first)[0] == ""
    assert stopped(precise, first, within=1e-6)[0] == ""
    assert stopped([state("alone")], first)[0] == "precision"
    assert stopped([state("alone", 0.2)], first)[0] == ""


def test_a_case_ends_with_its_plan() -> None:
    wide = [state("base"), state("new", 0.2, seed=2)]
    last = stats.alpha_at(len(stats.looks(8)) - 1, stats.looks(8), 0.05)
    assert stopped(wide, 8) == ("budget", last)
    assert stopped(wide, 5)[0] == ""


def test_so_many_processes_as_asked_for_whatever_the_precision() -> None:
    precise = [state("base"), state("new", seed=2)]
    assert stopped(precise, stats.looks(8)[0], replicates=8)[0] == ""
    assert stopped(precise, 8, replicates=8)[0] == "replicates"


@pytest.mark.slow
def test_a_whole_case_stops_when_it_is_precise_enough() -> None:
    case = run_arms(ArmSpec("only", HONEST), replicates=None, budget_s=8.0, within=0.99)
    assert case.stopped_by == "precision"
    assert case.replicates == case.looks[0] < MOST_REPLICATES


@pytest.mark.parametrize(
    ("peaks", "free", "times"),
    [((400, 349), 1000, 1), ((400, 500), 1000, 0), ((400, 351), 1000, 0), ((400, 349), 3000, 3)],
)
def test_arms_are_together_where_their_highest_peaks_fit(
    peaks: tuple[int, int], free: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling may need more than a step does; what the process held before counts too."""
    first, second = (ArmState(ArmSpec(name, HONEST)) for name in "ab")
    first.solo = solo(peak=peaks[0], start=100, before=25)
    second.solo = solo(peak=100, start=peaks[1], before=25)
    monkeypatch.setattr(run, "memory_available", lambda: free)
    assert run._fitting([first, second]) == times


def test_without_room_for_both_the_arms_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "memory_available", lambda: 1)
    arms = run_arms(ArmSpec("a", HONEST), ArmSpec("b", HONEST)).arms
    for arm in arms:
        assert arm.outcome is Outcome.OK, arm.detail
        assert [one.alone for one in arm.replicates] == [True, True]
        assert {turn.replicate for turn in arm.turns} == {0, 1}


def fickle(folder: Path, time: int, error: str) -> ArmSpec:
    """An arm that fails when it is built for that time: alone first, then once a replicate."""
    file = folder / "fickle.py"
    file.write_text(FICKLE.format(time=time, error=error))
    return ArmSpec("fickle", f"{file}:make")


@pytest.mark.parametrize("time", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_who_ran_out_of_memory_beside_others_is_tried_again_alone(
    tmp_path: Path, time: int
) -> None:
    """Also where it happened in the last process planned, the second."""
    case = run_arms(ArmSpec("honest", HONEST), fickle(tmp_path, time, "MemoryError"))
    honest, arm = case.arms
    assert (honest.outcome, arm.outcome) == (Outcome.OK, Outcome.OK)
    assert "tried again alone" in arm.notes[0]
    retried = {2: [(1, True)], 3: [(0, False), (2, True)]}[time]
    assert [(one.index, one.alone) for one in arm.replicates] == retried
    assert {turn.replicate for turn in arm.turns} == {index for index, _ in retried}
    assert case.stopped_by == "replicates"


def test_an_end_that_is_taken_back_leaves_what_was_known_before() -> None:
    wavering = state("wavering")
    wavering.wrong(Outcome.NONDETERMINISTIC, "two runs from one seed differ", "contract")
    honest, failed = state("honest"), state("failed")
    for one in (wavering, honest):
        one.end(ArmEnded(Outcome.OOM, OutcomeDetail("killed", "turn")))
    failed.end(ArmEnded(Outcome.ERROR, OutcomeDetail("broken", "turn")))
    assert run._forgive_oom([wavering, honest, failed])
    assert wavering.outcome is Outcome.NONDETERMINISTIC
    assert wavering.detail.message == "two runs from one seed differ"
    assert (honest.outcome, honest.detail) == (Outcome.OK, OutcomeDetail())
    assert (failed.outcome, failed.detail.message) == (Outcome.ERROR, "broken")
    assert "tried again alone" in wavering.notes[0]


@pytest.mark.slow
def test_who_runs_out_of_memory_alone_has_run_out(tmp_path: Path) -> None:
    arm = fickle(tmp_path, 3, "MemoryError")
    file = tmp_path / "fickle.py"
    file.write_text(file.read_text().replace("== 3", ">= 3"))
    honest, other = run_arms(ArmSpec("honest", HONEST), arm).arms
    assert honest.outcome is Outcome.OK
    assert other.outcome is Outcome.OOM


def test_a_reference_that_fails_gives_its_reason(tmp_path: Path) -> None:
    """The second time that the baseline is built is for its reference."""
    (arm,) = run_arms(fickle(tmp_path, 2, "RuntimeError('no room for float64')")).arms
    assert arm.outcome is Outcome.OK, arm.detail
    assert arm.agreement is not None
    assert (arm.agreement.method, arm.agreement.checked) == ("none", 0)
    assert arm.agreement.reason == "no reference: RuntimeError: no room for float64"


class ByName(Launcher):
    """Finds an interpreter by nothing but the name given."""

    def interpreter(self, arm: ArmSpec) -> str:
        return arm.python or "ours"


def test_processes_of_one_interpreter_have_one_probe(tmp_path: Path) -> None:
    spec = ArmSpec("a", HONEST)
    states = [
        ArmState(spec, solo=solo(probe_bits=128)),
        ArmState(replace(spec, name="b"), solo=solo(probe_bits=256)),
        ArmState(replace(spec, name="c", python="other"), solo=solo(probe_bits=512)),
        ArmState(replace(spec, name="d", python="other"), solo=solo(probe_bits=128)),
    ]
    run._pin_probes(ByName(tmp_path), states)
    assert [one.probe_bits for one in states] == [128, 128, 512, 512]


def test_the_probe_is_sized_once_and_kept_to(tmp_path: Path) -> None:
    turns = Turns(ArmSpec("a", HONEST), lambda name: None, 1, 32, {})
    assert turns.probe.exponent_bits == 32
    first, second = run_arms(ArmSpec("a", HONEST), ArmSpec("b", HONEST), replicates=1).arms
    assert first.probe_bits is not None
    assert first.probe_bits == second.probe_bits


def test_no_look_is_paid_for_that_is_never_made() -> None:
    plan = Plan(8, 6)
    assert run._looks(Settings(), plan) == stats.looks(8)
    assert len(stats.looks(8)) > 1
    fixed = run._looks(Settings(replicates=8), plan)
    assert fixed == (8,)
    assert stats.alpha_at(0, fixed, 0.05) == 0.05
