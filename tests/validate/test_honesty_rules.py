"""Rules about what the arm did: late work, timers, inputs, outputs, recompiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.show import synthetic_result
from tests.validate.cases import arm, checks, environment, levels, one, pair, result, with_noise
from torchstone.records import (
    NO_REFERENCE,
    NOTHING_COMPARABLE,
    Agreement,
    Contract,
    Graphs,
    Integrity,
    Leaf,
    Level,
    Measurement,
    Outcome,
)
from torchstone.validate import CONSTANT_OUTPUT_NOTE, evaluate, needs_spin_off

MS = 1_000_000


def late(late_ms: float, quiet_ms: float | None, share: float = 1.0) -> Measurement:
    """An arm that uses CPU time after that share of its turns."""
    made = arm("inductor", 4e-3, seed=2)
    busy = round(share * len(made.turns))
    quiet = None if quiet_ms is None else round(quiet_ms * MS)
    turns = [
        replace(t, noise=replace(t.noise, late_cpu_ns=round(late_ms * MS), quiet_after_ns=quiet))
        if i < busy
        else t
        for i, t in enumerate(made.turns)
    ]
    return replace(made, turns=tuple(turns))


def test_late_work_is_caught() -> None:
    check = one("late-work", pair(late(60, 65)), "inductor")
    assert check.level is Level.FAIL
    assert "60.0 ms of CPU time" in check.message
    assert check.figures["late_turns"] == 24


def test_an_arm_that_never_rests_is_caught() -> None:
    check = one("late-work", pair(late(15, None)), "inductor")
    assert check.level is Level.FAIL
    assert "never came to rest" in check.message


@pytest.mark.parametrize(
    ("late_ms", "quiet_ms", "share"),
    [(6, 7, 1.0), (19, 12, 1.0), (60, 65, 0.4), (15, None, 0.4), (6, None, 1.0)],
    ids=[
        "openmp spins",
        "two threads spin",
        "a few late turns",
        "a few restless turns",
        "a crowded machine",
    ],
)
def test_honest_arms_pass(late_ms: float, quiet_ms: float | None, share: float) -> None:
    assert levels("late-work", pair(late(late_ms, quiet_ms, share))) == [Level.OK] * 2


def test_the_allowance_grows_with_threads_or_cores() -> None:
    made = late(60, 65)
    eight = replace(made, environment=environment(threads={"torch": 8}))
    assert levels("late-work", result(eight)) == [Level.OK]
    unknown = replace(made, environment=environment(threads={}, cpu={"logical_cores": "8"}))
    assert levels("late-work", result(unknown)) == [Level.OK]
    two = replace(made, environment=environment(threads={}, cpu={"logical_cores": "2"}))
    assert levels("late-work", result(two)) == [Level.FAIL]


def test_a_long_turn_may_end_with_a_little_more() -> None:
    # A fifth of the wall time: a turn of 600 ms may be followed by 100 ms.
    made = with_noise(late(100, 105), lambda t: {"wall_ns": 600 * MS})
    assert levels("late-work", result(made)) == [Level.OK]


def test_openmp_run_times_that_spin_for_200_ms_are_not_called_cheats() -> None:
    check = one("late-work", pair(late(200, 201)), "inductor")
    assert check.level is Level.WARN
    assert "KMP_BLOCKTIME" in check.message
    alone = replace(late(200, 201), environment=environment(threads={"torch": 1}))
    assert levels("late-work", result(alone)) == [Level.FAIL]


@pytest.mark.parametrize(("quiet_ms", "asleep_ms"), [(120, 0.5), (None, 0.5), (200, 0.5)])
def test_threads_that_only_spin_are_no_late_work(quiet_ms: float | None, asleep_ms: float) -> None:
    made = late(115, quiet_ms)
    seen = replace(made, integrity=Integrity(late_without_spin_ns=round(asleep_ms * MS)))
    _, check = checks("late-work", pair(seen))
    assert check.level is Level.OK
    assert "Idle threads of inductor spin" in check.message
    assert check.figures["median_late_without_spin_s"] == pytest.approx(asleep_ms / 1e3)


@pytest.mark.parametrize("quiet_ms", [120, None, 200])
def test_work_that_stays_when_nothing_spins_is_caught(quiet_ms: float | None) -> None:
    made = replace(late(115, quiet_ms), integrity=Integrity(late_without_spin_ns=60 * MS))
    assert one("late-work", pair(made), "inductor").level is Level.FAIL


def test_only_doubted_arms_that_were_not_looked_at_need_another_look() -> None:
    doubted = evaluate(pair(late(115, 120)))
    assert needs_spin_off(replace(pair(late(115, 120)), checks=doubted)) == ["inductor"]
    looked = pair(replace(late(115, 120), integrity=Integrity(late_without_spin_ns=60 * MS)))
    assert needs_spin_off(replace(looked, checks=evaluate(looked))) == []
    honest = pair(late(6, 7))
    assert needs_spin_off(replace(honest, checks=evaluate(honest))) == []


def test_late_work_is_not_evaluated_where_the_system_does_not_say() -> None:
    unknown = with_noise(arm(), lambda t: {"late_cpu_ns": None, "quiet_after_ns": None})
    nothing = with_noise(arm(), lambda t: {"late_cpu_ns": 0, "quiet_after_ns": None})
    assert checks("late-work", result(unknown)) == []
    assert checks("late-work", result(nothing)) == []


def test_a_patched_timer_fails() -> None:
    cheat = arm("cheat", integrity=Integrity(patched_timers=("time.perf_counter_ns",)))
    check = one("timer", pair(cheat), "cheat")
    assert check.level is Level.FAIL
    assert "time.perf_counter_ns" in check.message
    assert checks("timer", result(arm(integrity=None))) == []


@pytest.mark.parametrize(
    ("same_us", "fresh_us", "level"),
    [
        (30, 5000, Level.FAIL),
        (20, 41, Level.FAIL),
        (20, 39, Level.WARN),
        (100, 190, Level.WARN),
        (1000, 1300, Level.WARN),
        (5, 20, Level.WARN),  # more than twice, but by less than a step's worth
        (1000, 1200, Level.OK),
        (2, 6, Level.OK),  # microseconds
        (1000, 500, Level.OK),
    ],
)
def test_fresh_inputs(same_us: int, fresh_us: int, level: Level) -> None:
    facts = Integrity(same_input_ns=same_us * 1000, fresh_input_ns=fresh_us * 1000)
    (check,) = checks("fresh-inputs", result(arm(integrity=facts)))
    assert check.level is level
    assert check.figures["ratio"] == pytest.approx(fresh_us / same_us)
    assert ("remembers its last input" in check.message) is (level is Level.FAIL)


def test_a_memory_of_the_last_input_alone_is_caught() -> None:
    facts = Integrity(same_input_ns=400_000, fresh_input_ns=400_000, again_ns=1_000)
    check = one("fresh-inputs", result(replace(arm(), integrity=facts)), "eager")
    assert check.level is Level.FAIL
    warm = replace(facts, again_ns=60_000)  # what the processor's caches can do
    assert levels("fresh-inputs", result(replace(arm(), integrity=warm))) == [Level.OK]


def test_a_tensor_class_of_ones_own_is_caught() -> None:
    lazy = Leaf("output", "torch", "float32", (8,), type_name="mine.Lazy")
    made = replace(arm(), contract=Contract((), (lazy,)))
    check = one("plain-output", result(made), "eager")
    assert check.level is Level.FAIL
    assert "mine.Lazy" in check.message
    plain = replace(made, contract=Contract((), (replace(lazy, type_name="torch.Tensor"),)))
    assert levels("plain-output", result(plain)) == [Level.OK]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "meta"}, "device meta"),
        ({"device": "lazy:0"}, "device lazy:0"),
        ({"type_name": "torch._subclasses.fake_tensor.FakeTensor"}, "a tensor class of its own"),
    ],
)
def test_an_output_without_values_is_caught(changes: dict[str, str], words: str) -> None:
    leaf = Leaf("output", "torch", "float32", (8,), type_name="torch.Tensor")
    made = replace(arm(), contract=Contract((), (replace(leaf, **changes),)))
    check = one("plain-output", result(made), "eager")
    assert check.level is Level.FAIL
    assert words in check.message
    parameter = replace(leaf, type_name="torch.nn.parameter.Parameter")
    made = replace(arm(), contract=Contract((), (parameter,)))
    assert levels("plain-output", result(made)) == [Level.OK]


def test_a_profiler_that_was_left_on_fails() -> None:
    for seen in ("torch.profiler", "sys.settrace", "dispatch mode FlopCounterMode"):
        watched = arm("watched", integrity=Integrity(profilers=(seen,)))
        check = one("profiler", pair(watched), "watched")
        assert check.level is Level.FAIL
        assert seen in check.message
    assert checks("profiler", result(arm(integrity=None))) == []


def test_a_mode_that_computes_is_a_part_of_the_arm() -> None:
    made = arm("mine", integrity=Integrity(profilers=("dispatch mode Quantised",)))
    check = one("profiler", pair(made), "mine")
    assert check.level is Level.WARN
    assert "Quantised" in check.message


def test_fresh_inputs_says_nothing_where_it_was_not_tried() -> None:
    assert checks("fresh-inputs", result(arm(integrity=Integrity()))) == []


def test_outputs_that_were_not_checked() -> None:
    for agreement in (None, Agreement("none", reason="no tensors"), Agreement("fp64")):
        check = one("output-check", result(arm(agreement=agreement)), "eager")
        assert check.level is Level.WARN
        assert "were not compared" in check.message


@pytest.mark.parametrize(
    ("agreement", "why", "remedy"),
    [
        (None, "(checking was off)", "with output checking on"),
        (Agreement("none", NOTHING_COMPARABLE), f"({NOTHING_COMPARABLE})", "return tensors"),
        (Agreement("none", f"{NO_REFERENCE}: killed by SIGKILL"), "killed by SIGKILL", "baseline"),
        (Agreement("none", "output: 9 of 9 values are NaN or infinite"), "9 of 9", "within range"),
    ],
)
def test_why_nothing_was_compared_and_what_helps(
    agreement: Agreement | None, why: str, remedy: str
) -> None:
    check = one("output-check", result(arm(agreement=agreement)), "eager")
    assert check.level is Level.WARN
    assert why in check.message
    assert remedy in check.message
    assert ("return tensors" in check.message) == (remedy == "return tensors")


def test_outputs_checked_against_the_baseline_only() -> None:
    weaker = Agreement("eager", reason="float64 does not fit in memory", checked=3, timed=2)
    check = one("output-check", result(arm(agreement=weaker)), "eager")
    assert check.level is Level.NOTE
    assert "float64 does not fit in memory" in check.message


def test_outputs_checked_only_outside_timed_turns() -> None:
    agreement = Agreement("fp64", checked=3, timed=0)
    check = one("output-check", result(arm(agreement=agreement)), "eager")
    assert check.level is Level.NOTE
    assert "none came from inside a timed turn" in check.message
    assert levels("output-check", result(arm(agreement=agreement, turns=()))) == [Level.OK]


def test_a_mismatch_under_an_ok_outcome_still_fails() -> None:
    agreement = Agreement("fp64", checked=3, timed=1, mismatch="output.y: error 3e-2")
    assert levels("output-check", result(arm(agreement=agreement))) == [Level.FAIL]


def test_checked_outputs_are_counted() -> None:
    (check,) = checks("output-check", result(arm(agreement=Agreement("exact", checked=5, timed=4))))
    assert check.level is Level.OK
    assert check.figures == {"checked": 5.0, "timed": 4.0}


def test_a_blunt_check_says_so() -> None:
    blunt = Agreement("fp64", multiplier=3.0, rmse_baseline=0.35, checked=5, timed=4)
    check = one("output-check", result(arm(agreement=blunt)), "eager")
    assert check.level is Level.WARN
    assert "an error of 105 % would pass" in check.message
    sharp = Agreement("fp64", multiplier=3.0, rmse_baseline=0.01, checked=5, timed=4)
    assert levels("output-check", result(arm(agreement=sharp))) == [Level.OK]


def test_statements_and_failed_arms_need_no_output_check() -> None:
    assert checks("output-check", synthetic_result.statement()) == []
    broken = arm(agreement=None, outcome=Outcome.CRASH)
    assert checks("output-check", result(broken)) == []


def test_a_constant_output_is_told() -> None:
    notes = ("seen in the solo pass", f"{CONSTANT_OUTPUT_NOTE} (3 inputs)")
    made = arm(notes=notes, contract=None)
    check = one("constant-output", result(made), "eager")
    assert check.level is Level.WARN
    logits = Leaf("output", "torch", "float32", (8, 128), type_name="torch.Tensor")
    made = replace(made, contract=Contract((), (logits,)))
    assert one("constant-output", result(made), "eager").level is Level.FAIL
    assert levels("constant-output", result(arm(notes=("other",)))) == [Level.OK]
    assert checks("constant-output", result(arm(agreement=None))) == []


def test_late_recompiles_are_told() -> None:
    check = one("recompiles", pair(arm("inductor", graphs=Graphs(late_recompiles=3))), "inductor")
    assert check.level is Level.WARN
    assert "3 times" in check.message
    early = arm("inductor", graphs=Graphs(graphs=2, recompiles=2))
    assert levels("recompiles", result(early)) == [Level.OK]
    assert checks("recompiles", result(arm(graphs=None))) == []


def test_late_recompiles_under_changing_shapes_say_where_their_cost_went() -> None:
    made = arm("inductor", graphs=Graphs(late_recompiles=4))
    check = one("recompiles", pair(replace(made, arm=replace(made.arm, shapes=4))), "inductor")
    assert check.level is Level.WARN
    assert "4 new input shapes" in check.message
    assert "kept apart" in check.message
    assert "+dynamic" not in check.message
