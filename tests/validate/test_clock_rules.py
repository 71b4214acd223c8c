"""The rule that holds an arm's clock against the kernel's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.validate.cases import arm, levels, one, pair
from torchstone.records import Level, Measurement, Statement, Turn, TwoClocks

RULE = "second-clock"


def marked(turn: Turn, rate: float, cpu_rate: float = 1.0) -> Turn:
    """The turn as the kernel would have seen it, had the arm's clock run at that rate."""
    claimed = turn.first_ns + sum(turn.wall_ns) + sum(turn.probe_ns)
    kernel, used = round(claimed / rate), claimed
    clocks = TwoClocks(claimed, kernel, round(used * cpu_rate), used)
    return replace(turn, clocks=clocks, noise=replace(turn.noise, wait_ns=0))


def timed_twice(made: Measurement, rate: float, share: float = 1.0) -> Measurement:
    """An arm whose clock ran at that rate in that share of its turns."""
    off = round(share * len(made.turns))
    turns = [marked(turn, rate if i < off else 0.998) for i, turn in enumerate(made.turns)]
    return replace(made, turns=tuple(turns))


def level(made: Measurement) -> Level:
    (found,) = levels(RULE, pair(made))  # the other arm was timed once
    return found


def new() -> Measurement:
    return arm("inductor", 4e-3, seed=2)


@pytest.mark.parametrize("rate", [0.1, 0.9, 0.95, 1.05, 1.2, 10.0])
def test_a_clock_at_another_rate_fails(rate: float) -> None:
    assert level(timed_twice(new(), rate)) is Level.FAIL


@pytest.mark.parametrize("rate", [0.99, 0.998, 1.0, 1.002])
def test_what_lies_between_samples_is_no_fault(rate: float) -> None:
    assert level(timed_twice(new(), rate)) is Level.OK


def test_a_clock_that_is_changed_in_some_turns_fails_by_the_sum() -> None:
    assert level(timed_twice(new(), 0.3, share=0.25)) is Level.FAIL
    assert level(timed_twice(new(), 3.0, share=0.25)) is Level.FAIL


def test_a_wait_for_a_core_between_samples_is_no_fault() -> None:
    made = timed_twice(new(), 0.93)
    waits = [replace(t, noise=replace(t.noise, wait_ns=10**9)) for t in made.turns]
    assert level(replace(made, turns=tuple(waits))) is Level.OK
    # But it excuses no clock that has lost much.
    slow = timed_twice(new(), 0.85)
    waits = [replace(t, noise=replace(t.noise, wait_ns=10**9)) for t in slow.turns]
    assert level(replace(slow, turns=tuple(waits))) is Level.FAIL


@pytest.mark.parametrize("rate", [0.1, 0.5, 2.0])
def test_a_clock_of_cpu_time_at_another_rate_fails(rate: float) -> None:
    made = new()
    turns = [
        replace(
            marked(turn, 0.998),
            clocks=replace(
                marked(turn, 0.998).clocks or TwoClocks(1, 1, 1),
                cpu_worker_ns=round(100_000_000 * rate),
                cpu_conductor_ns=100_000_000,
            ),
        )
        for turn in made.turns
    ]
    check = one(RULE, pair(replace(made, turns=tuple(turns))), "inductor")
    assert check.level is Level.FAIL
    assert "CPU time" in check.message


@pytest.mark.parametrize(("used_ms", "told"), [(19, Level.OK), (8, Level.FAIL)])
def test_short_turns_of_a_statement_hide_no_clock_of_cpu_time(used_ms: int, told: Level) -> None:
    """A statement has no inputs to be made, for which a step may use 10 ms more."""
    made = timed_twice(new(), 0.998)
    spec = replace(made.arm, target="", statement=Statement("x", clock="cpu"))
    worker, kernel = used_ms * 1_000_000, 20_000_000
    turns = []
    for turn in made.turns:
        clocks = turn.clocks or TwoClocks(1, 1, 1)
        clocks = replace(clocks, cpu_worker_ns=worker, cpu_conductor_ns=kernel)
        clocks = replace(clocks, marked_worker_ns=kernel, marked_kernel_ns=kernel)
        turns.append(replace(turn, clocks=clocks))
    assert level(replace(made, arm=spec, turns=tuple(turns))) is told


def test_samples_with_more_cpu_time_than_their_threads_can_use_fail() -> None:
    made = timed_twice(new(), 0.998)
    first, *rest = made.turns
    many = replace(first, cpu_ns=tuple(3 * ns for ns in first.wall_ns))
    alone = replace(made, arm=replace(made.arm, threads=1), turns=(many, *rest))
    check = one(RULE, pair(alone), "inductor")
    assert check.level is Level.FAIL
    assert "than 1 thread can" in check.message


def test_a_jump_between_two_samples_fails() -> None:
    first, *rest = timed_twice(new(), 0.998).turns
    clocks = first.clocks
    assert clocks is not None
    hour = replace(clocks, marked_worker_ns=clocks.marked_worker_ns + 3_600_000_000_000)
    jumped = replace(new(), turns=(replace(first, clocks=hour), *rest))
    check = one(RULE, pair(jumped), "inductor")
    assert check.level is Level.FAIL
    assert "in 1 turn" in check.message


def redistributed(made: Measurement, share: float) -> Measurement:
    """Half of the samples lose that share of their time, of CPU time too, and the others get it:
    every sum is as it should be. The kernel has timed another sample of each turn."""

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        out = list(values)
        for place in range(0, len(out) - 1, 2):
            taken = round(share * out[place])
            out[place], out[place + 1] = out[place] - taken, out[place + 1] + taken
        return tuple(out)

    turns = []
    for number, turn in enumerate(made.turns):
        one = number % len(turn.wall_ns)
        clocks = replace(
            turn.clocks or TwoClocks(1, 1, 1),
            sample=one,
            sample_kernel_ns=turn.wall_ns[one] + 12_000,
        )
        changed = replace(turn, wall_ns=moved(turn.wall_ns), cpu_ns=moved(turn.cpu_ns))
        turns.append(replace(changed, clocks=clocks))
    return replace(made, turns=tuple(turns))


def test_a_clock_that_takes_time_from_some_samples_for_others_fails() -> None:
    made = timed_twice(new(), 0.998)
    assert level(redistributed(made, 0.0)) is Level.OK
    check = one(RULE, pair(redistributed(made, 0.5)), "inductor")
    assert check.level is Level.FAIL
    assert "gives it to others" in check.message


def test_one_turn_far_off_is_a_warning() -> None:
    made = timed_twice(new(), 0.998)
    first, *rest = (replace(t, wall_ns=t.wall_ns * 8, cpu_ns=t.cpu_ns * 8) for t in made.turns)
    longer = [marked(turn, 0.998) for turn in (first, *rest)]
    longer[0] = marked(first, 0.48)
    assert level(replace(made, turns=tuple(longer))) is Level.WARN


def test_a_record_that_was_timed_once_has_no_check() -> None:
    assert levels(RULE, pair(new())) == []


def on_two_threads(cpu: dict[int, tuple[int, int]]) -> Measurement:
    """An arm on two threads with 40 samples a turn of 600 µs and rising; of each turn, the samples
    with these numbers have another wall and CPU time."""
    made = new()
    usual = [(600_000 + 100 * place, 1_200_000 + 200 * place) for place in range(40)]
    pairs = [cpu.get(place, pair) for place, pair in enumerate(usual)]
    walls, used = zip(*pairs, strict=True)
    turns = [replace(t, wall_ns=walls, cpu_ns=used, probe_ns=()) for t in made.turns]
    return replace(
        made, arm=replace(made.arm, threads=2), turns=tuple(marked(turn, 0.998) for turn in turns)
    )


def test_cpu_time_that_the_kernel_adds_at_its_ticks_is_no_fault() -> None:
    late = {place: (602_000 + 100 * place, 4_600_000) for place in range(6, 40, 7)}
    assert level(on_two_threads(late)) is Level.OK


def test_ticks_that_reach_two_samples_of_three_are_no_fault_in_the_fastest() -> None:
    late = {place: (600_000 + 100 * place, 4_600_000) for place in range(40) if place % 3 != 1}
    assert level(on_two_threads(late)) is Level.OK


def test_with_two_threads_a_clock_changed_in_the_fastest_samples_fails() -> None:
    check = one(RULE, pair(on_two_threads({17: (150_000, 1_200_000)})), "inductor")
    assert check.level is Level.FAIL
    assert "of the fastest 10 samples" in check.message
