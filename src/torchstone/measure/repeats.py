"""Does the arm remember inputs? Calls with new inputs, with the same ones again, and at once again.

New inputs are made beforehand and all kept: making one in between would move the heap and cost
page faults, and a cache by identity would take a new input for an old one that is gone. Walking the
whole row a second time puts as much other memory between the two visits as before the first, so
the processor's own caches treat both alike. Only a call repeated at once finds them warm.

Time without a core is taken out: there are few calls, and on a crowded machine one that lost its
core takes several times as long as one that did not. That is not seen where threads of a pool lose
theirs, and a neighbour may slow a whole round. An arm that remembers does so in every round, so the
round that speaks least against it is the one on record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torchstone.machine.noise import waited_ns
from torchstone.measure.built import RING_BYTES, Built, inputs_bytes
from torchstone.measure.clock import thread_clock, wall_clock
from torchstone.measure.warmup import BEAT_NS
from torchstone.records import Integrity
from torchstone.workloads import Inputs

ROW, LEAST_ROW = 12, 2
ROUNDS = 4
DOUBT = 1.1
"""MLPerf's compliance test 04 allows 10 % between repeated and varied inputs."""
AGAIN_DOUBT = 10.0
"""Half of what the rule `fresh-inputs` takes for a memory of the last input alone."""
LIMIT_NS = 2_000_000_000
ROW_NS = 400_000_000
"""A row walked twice takes no longer than this, but for its least length: of steps of 40 ms five
are enough to see an answer that is looked up, which takes microseconds."""
FIRST_SEED = 5000


def look_for_memory(built: Built, beat: Callable[[], None], step_ns: int) -> Integrity:
    """Lower quartiles of the three kinds of call; a difference is looked at again (R11).

    `step_ns` is about what a call takes: of long ones a row has few.
    """
    rounds: list[_Round] = []
    spent = 0

    def call(inputs: Inputs) -> int:
        waited, ran = waited_ns(), thread_clock()
        started = wall_clock()
        built.call(inputs)
        took = wall_clock() - started
        ran, waited = thread_clock() - ran, waited_ns() - waited
        if took > BEAT_NS:
            beat()
        # The core may also be lost outside the call, between two readings.
        return took - min(waited, max(0, took - ran))

    kept = []  # ids of inputs that are gone would be given to new ones
    for number in range(ROUNDS):
        row = _row(built, number, step_ns)
        kept.append(row)
        fresh = [call(inputs) for inputs in row]
        same = [call(inputs) for inputs in row]
        again = [call(row[-1]) for _ in range(len(row) // 2)]
        rounds.append(_Round(*map(_lower_quartile, (fresh, same, again))))
        spent += sum(fresh) + sum(same)
        if rounds[-1].against <= 1.0 or spent > LIMIT_NS:
            break
    least = min(rounds, key=lambda one: one.against)
    return Integrity(same_input_ns=least.same, fresh_input_ns=least.fresh, again_ns=least.again)


class _Round(NamedTuple):
    """What a call took with a new input, with one seen before, and at once again."""

    fresh: int
    same: int
    again: int

    @property
    def against(self) -> float:
        """How much speaks for a memory; up to 1 nothing does."""
        of_row = self.fresh / (DOUBT * max(1, self.same))
        return max(of_row, self.fresh / (AGAIN_DOUBT * max(1, self.again)))


def _row(built: Built, number: int, step_ns: int) -> list[Inputs]:
    seed = built.arm.seed + FIRST_SEED + number * ROW
    first = built.inputs(seed)
    by_memory = RING_BYTES // ROUNDS // max(1, inputs_bytes(first))
    by_time = ROW_NS // (2 * max(1, step_ns))
    length = max(LEAST_ROW, min(ROW, by_memory, by_time))
    return [first, *(built.inputs(seed + i) for i in range(1, length))]


def _lower_quartile(times: list[int]) -> int:
    return sorted(times)[len(times) // 4]
