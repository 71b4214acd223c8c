"""Rules about what the machine did: steady, noise, probe, allocator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.stats import synthetic
from tests.validate.cases import (
    FAULT_NS,
    arm,
    checks,
    environment,
    levels,
    one,
    pair,
    result,
    share_of,
    with_noise,
)
from torchstone.records import ArmSpec, Level, Measurement, Outcome, WarmUp


def test_steady_names_the_reason() -> None:
    restless = arm("inductor", 4e-3)
    warm = WarmUp(1, (1,), False, "the last two windows' floors differ by 7.0%")
    processes = (replace(restless.replicates[0], warm_up=warm), *restless.replicates[1:])
    check = one("steady", pair(replace(restless, replicates=processes)), "inductor")
    assert check.level is Level.WARN
    assert "1 of 4 processes (the last two windows' floors differ by 7.0%)" in check.message
    assert levels("steady", pair()) == [Level.OK] * 2


def test_steady_wants_calls_before_timing() -> None:
    made = arm("inductor", 4e-3, seed=2)
    cold = tuple(replace(r, warm_up=WarmUp(1, (), True)) for r in made.replicates)
    check = one("steady", pair(replace(made, replicates=cold)), "inductor")
    assert check.level is Level.WARN
    assert "it made no call to warm up" in check.message


def first_slow(made: Measurement, times: float, processes: int) -> Measurement:
    """The arm with the very first sample of some processes slower."""
    turns = [
        replace(t, wall_ns=(round(times * t.wall_ns[0]), *t.wall_ns[1:]))
        if t.index == 0 and t.replicate < processes
        else t
        for t in made.turns
    ]
    return replace(made, turns=tuple(turns))


def test_a_first_call_among_the_samples_is_told() -> None:
    made = arm("inductor", 4e-3, seed=2)
    check = one("steady", pair(first_slow(made, 200, 4)), "inductor")
    assert check.level is Level.WARN
    assert "a first call is timed with the rest" in check.message
    assert levels("steady", pair(first_slow(made, 200, 3))) == [Level.OK] * 2
    assert levels("steady", pair(first_slow(made, 3, 4))) == [Level.OK] * 2


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        ({"wait_ns": 0.05}, "waiting for a core"),
        ({"steal_ns": 0.05}, "the hypervisor"),
        ({"pressure_ns": 0.50}, "other tasks"),
    ],
)
def test_noise_is_a_note_in_few_turns_and_a_warning_in_many(
    counters: dict[str, float], words: str
) -> None:
    few = one("noise", pair(share_of(arm("inductor", 4e-3), 0.125, counters)), "inductor")
    many = one("noise", pair(share_of(arm("inductor", 4e-3), 0.5, counters)), "inductor")
    assert (few.level, many.level) == (Level.NOTE, Level.WARN)
    assert words in few.message
    assert "12 of 24 turns of inductor (50 %)" in many.message
    assert many.figures["dirty_share"] == 0.5


@pytest.mark.parametrize(
    "counters", [{"wait_ns": 0.015}, {"steal_ns": 0.015}, {"pressure_ns": 0.15}]
)
def test_noise_leaves_small_amounts_alone(counters: dict[str, float]) -> None:
    # Steal is counted over both cores, so 1.5 % of the wall time is 0.75 % of theirs.
    assert levels("noise", pair(share_of(arm("inductor"), 1.0, counters))) == [Level.OK] * 2


def test_noise_warns_of_a_single_throttled_turn() -> None:
    throttled = share_of(arm("inductor", 4e-3), 1 / 24, {"throttled_ns": 0.01})
    check = one("noise", pair(throttled), "inductor")
    assert check.level is Level.WARN
    assert "CPU limit" in check.message
    assert check.figures["throttled_turns"] == 1


def test_noise_is_calm_where_the_interval_is_narrow() -> None:
    dirty = share_of(arm("inductor", 4e-3, seed=2), 0.5, {"wait_ns": 0.05})
    calm = one("noise", pair(dirty), "inductor")
    assert "so the figure stands" in calm.message
    wide = [replace(c, interval=(0.6, 1.1)) for c in pair(dirty).comparisons]
    alarmed = one("noise", pair(dirty, comparisons=tuple(wide)), "inductor")
    assert "stands" not in alarmed.message


def test_noise_of_a_single_arm_looks_at_its_own_interval() -> None:
    dirty = share_of(arm(), 0.5, {"wait_ns": 0.05})
    assert "so the figure stands" in one("noise", result(dirty), "eager").message


def single(name: str, cpu: float, **counters: int | None) -> Measurement:
    """A one-threaded arm whose CPU time is that share of its wall time."""
    made = arm(name, environment=environment(threads={"torch": 1}))
    return with_noise(made, lambda t: {"cpu_ns": round(cpu * t.noise.wall_ns), **counters})


def test_occupancy_of_one_thread_counts_where_waiting_is_unknown() -> None:
    unknown = {"wait_ns": None, "steal_ns": None, "pressure_ns": None, "throttled_ns": None}
    check = one("noise", result(single("eager", 0.8, **unknown)), "eager")
    assert check.level is Level.WARN
    assert "losing the core" in check.message
    assert levels("noise", result(single("eager", 0.97, **unknown))) == [Level.OK]


def test_an_arm_that_sleeps_is_not_blamed_on_the_machine() -> None:
    check = one("noise", result(single("eager", 0.3, wait_ns=0)), "eager")
    assert check.level is Level.NOTE
    assert "30 %" in check.message
    assert "sleeps" in check.message


def test_occupancy_is_not_evaluated_with_more_threads_or_without_counters() -> None:
    two = with_noise(arm(), lambda t: {"cpu_ns": t.noise.wall_ns // 2})
    assert levels("noise", result(two)) == [Level.OK]
    unknown = with_noise(
        two, lambda t: dict.fromkeys(("wait_ns", "steal_ns", "pressure_ns", "throttled_ns"))
    )
    assert checks("noise", result(unknown)) == []


def probed(name: str, slow: float, per_turn: int = 12) -> Measurement:
    """An arm of which that share of the turns ran on a slow core, the slow ones last."""
    turns = []
    for replicate in range(4):
        for index in range(10):
            is_slow = index >= round(10 * (1 - slow))
            probes = [round(100_000 * (1.3 if is_slow and i else 1.0)) for i in range(per_turn + 1)]
            turns.append(synthetic.turn(replicate, index, [5_000_000] * per_turn, probes))
    return replace(arm(name), turns=tuple(turns))


def test_probe_notes_a_core_that_ran_slow_most_of_the_time() -> None:
    check = one("probe", pair(probed("inductor", 0.8)), "inductor")
    assert check.level is Level.NOTE
    assert "80 % of the samples" in check.message
    assert check.figures["fewest_clean"] == 24
    assert levels("probe", pair(probed("inductor", 0.4))) == [Level.OK] * 2


def test_probe_warns_where_few_samples_are_clean() -> None:
    check = one("probe", pair(probed("inductor", 0.9, per_turn=4)), "inductor")
    assert check.level is Level.WARN
    assert "4 of 4 processes" in check.message
    assert check.figures["fewest_clean"] == 4


def test_probe_does_not_warn_for_one_process_in_four() -> None:
    bad, good = probed("inductor", 0.9, per_turn=4), probed("inductor", 0.2, per_turn=4)
    mixed = [t for t in bad.turns if t.replicate == 0] + [t for t in good.turns if t.replicate]
    check = next(
        c for c in checks("probe", pair(replace(bad, turns=tuple(mixed)))) if "inductor" in c.arms
    )
    assert check.level is Level.OK
    assert check.figures["processes_with_few"] == 1


def test_probe_says_nothing_without_probes() -> None:
    turns = tuple(replace(t, probe_ns=(), probe_every=0) for t in arm().turns)
    assert checks("probe", result(arm(turns=turns))) == []


def faulting(name: str, step: float, faults: int, seed: int = 1, **changes: object) -> Measurement:
    made = arm(name, step, seed, **changes)
    turns = (replace(t, minor_faults=faults * len(t.wall_ns) * made.loops) for t in made.turns)
    return replace(made, turns=tuple(turns))


def test_allocator_states_counts_and_names_the_arm_that_would_measure() -> None:
    made = pair(faulting("inductor", 9e-3, 2_000, seed=2), faulting("eager", 10e-3, 6_000))
    check = one("allocator", made, "inductor")
    assert check.level is Level.WARN
    assert check.figures == {"base_faults_per_call": 6_000, "new_faults_per_call": 2_000}
    assert "6,000" in check.message
    assert '--arm "name=keep allocator=keep"' in check.message
    assert "ratio" not in check.message, "counted faults give no ratio"


def test_allocator_speaks_by_the_least_disturbed_reading_of_a_faults_cost() -> None:
    # 300 faults are 1.5 % of a step of 5 ms at the lowest reading, 7.5 % at the highest.
    new = faulting("inductor", 4e-3, 300, seed=2, fault_cost_ns=5 * FAULT_NS)
    assert levels("allocator", pair(new)) == [Level.OK]


def with_allocator(made: Measurement, allocator: str, name: str) -> Measurement:
    return replace(made, arm=ArmSpec(name, "model.py:make", allocator=allocator))


@pytest.mark.parametrize("names", [("keep", "default"), ("default", "keep")])
def test_allocator_tells_a_cost_from_the_arm_that_was_measured(names: tuple[str, str]) -> None:
    times = {"keep": (5e-3, 0), "default": (6e-3, 4_000)}
    made = [
        with_allocator(faulting(name, *times[name], seed=seed), name, name)
        for seed, name in enumerate(names)
    ]
    evaluated = result(*made)
    check = one("allocator", evaluated, names[1])
    assert check.level is Level.NOTE
    assert "The system's own allocator takes 1.2" in check.message
    assert "default against keep" in check.message
    found = evaluated.comparisons[0]
    assert (check.figures["low"], check.figures["high"]) == found.interval
    assert check.figures["time_ratio"] == found.time_ratio


def test_allocator_has_no_cost_without_a_comparison() -> None:
    kept = with_allocator(arm("keep", 5e-3), "keep", "keep")
    own = with_allocator(arm("default", 6e-3, seed=2), "default", "default")
    assert checks("allocator", replace(result(kept, own), comparisons=())) == []


def test_allocator_points_at_the_arm_that_is_there() -> None:
    base = with_allocator(faulting("eager", 10e-3, 6_000), "default", "eager")
    new = faulting("inductor", 9e-3, 2_000, seed=2)
    kept = with_allocator(faulting("kept", 8e-3, 0, seed=3), "keep", "kept")
    said = {c.arms[1]: c for c in checks("allocator", result(base, new, kept))}
    assert "--arm" not in said["inductor"].message
    assert said["kept"].level is Level.NOTE


def test_allocator_counts_calls_not_samples() -> None:
    made = replace(faulting("inductor", 4e-3, 100, seed=2), loops=10)
    check = checks("allocator", pair(made))[0]
    assert check.figures["new_faults_per_call"] == pytest.approx(10)


def test_allocator_leaves_small_differences_alone() -> None:
    # 300 faults of 250 ns are 1.5 % of a step of 5 ms.
    assert levels("allocator", pair(faulting("inductor", 4e-3, 300, seed=2))) == [Level.OK]


def test_allocator_names_another_remedy_where_memory_is_kept() -> None:
    base, new = faulting("eager", 10e-3, 6_000), faulting("inductor", 9e-3, 2_000, seed=2)
    base, new = (replace(m, arm=replace(m.arm, allocator="keep")) for m in (base, new))
    check = one("allocator", pair(new, base), "inductor")
    assert "--allocator keep" not in check.message


def test_allocator_says_nothing_without_cost_or_samples() -> None:
    new, base = faulting("inductor", 9e-3, 2_000), faulting("eager", 10e-3, 6_000)
    unknown = [replace(m, fault_cost_ns=None) for m in (new, base)]
    assert checks("allocator", pair(*unknown)) == []
    assert checks("allocator", pair(replace(new, outcome=Outcome.WRONG_ANSWER), base)) == []
    assert checks("allocator", result(base)) == []


def narrow(precision: str, step: float, flags: str) -> Measurement:
    """An arm in this precision on a CPU with these flags."""
    made = arm(precision, step, seed=2)
    here = environment(cpu={"logical_cores": "2", "flags": flags})
    return replace(made, arm=replace(made.arm, precision=precision), environment=here)


def test_a_narrow_type_that_the_cpu_lacks_is_the_reason_for_its_time() -> None:
    check = one("precision", pair(narrow("bf16", 35e-3, "avx avx2")), "bf16")
    assert check.level is Level.NOTE
    assert check.message.startswith("bf16 takes 7.0× the time because this CPU has no instructions")
    assert "Use fp32 here." in check.message
    assert check.figures["time_ratio"] == pytest.approx(7.0, rel=0.02)


@pytest.mark.parametrize(
    ("precision", "step", "flags"),
    [
        ("bf16", 35e-3, "avx512f avx512_bf16"),
        ("bf16", 5e-3, "avx2"),
        ("fp32", 35e-3, "avx2"),
        ("bf16", 35e-3, ""),
    ],
)
def test_no_reason_is_given_where_it_is_another(precision: str, step: float, flags: str) -> None:
    assert checks("precision", pair(narrow(precision, step, flags))) == []


def test_threads_beyond_the_cores_are_named_and_blamed() -> None:
    """99 threads on 2 cores disturb themselves: no other work need be stopped."""
    crowd = share_of(arm("eager"), 1.0, {"wait_ns": 0.5})
    crowd = replace(crowd, arm=replace(crowd.arm, threads=99))
    crowd = replace(crowd, environment=environment(cpu={"affinity": "2"}))
    check = one("threads", result(crowd), "eager")
    assert check.level is Level.WARN
    assert "99 threads on 2 cores" in check.message
    disturbed = one("noise", result(crowd), "eager").message
    assert "its own 99 threads share 2 cores" in disturbed
    assert "ther work" not in disturbed
    enough = replace(crowd, arm=replace(crowd.arm, threads=2))
    assert levels("threads", result(enough)) == []
    assert "top other work" in one("noise", result(enough), "eager").message
