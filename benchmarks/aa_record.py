"""Pools of replicates under other conditions, straight from the conductor.

Each replicate is one fresh process of the base and one of every slow-down, which take a fixed
number of turns: what a trial is made of, without the plan and the stopping of a trial. All
slow-downs of a replicate share its base, which saves two thirds of the time; their turns lie
further apart than those of two arms alone, so what is found here is, if anything, a little
pessimistic.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from aa_journal import Row
from aa_load import Size
from aa_ours import encode

from torchstone.conductor import Settings
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.run import prepare_arms
from torchstone.conductor.state import ArmState
from torchstone.conductor.turn_scheduler import LEAST_TURNS, Plan, TurnScheduler, cycle_seconds
from torchstone.machine.folders import own_folder
from torchstone.records import ArmSpec


@dataclass
class Session:
    """The base and its slow-downs, looked at alone once, ready for any number of replicates."""

    states: list[ArmState]
    effects: tuple[int, ...]
    rounds: TurnScheduler
    settings: Settings
    seconds: float

    def replicate(self, index: int) -> dict[int, Row]:
        """One replicate's samples of base and new, by effect."""
        self.rounds.replicate(self.states, index, self._plan)
        dead = [state for state in self.states if not state.alive]
        if dead:
            raise SystemExit(f"{dead[0].outcome.value}: {dead[0].detail.message}")
        base, *others = (encode(state.measurement()) for state in self.states)
        for state in self.states:
            state.turns.clear()
            state.replicates.clear()
        return {e: {"raw": [base, new]} for e, new in zip(self.effects, others, strict=True)}

    def _plan(self, sample_ns: list[int]) -> Plan:
        """As many turns as two arms alone would take in `seconds`."""
        pair = cycle_seconds(self.settings, sample_ns[:2])
        turns = int(self.seconds / pair)
        return Plan(1, max(LEAST_TURNS, turns))


def open_session(
    stack: ExitStack,
    size: Size,
    effects: tuple[int, ...],
    seed: int,
    seconds: float,
    turn_ms: float,
) -> Session:
    """Start a case that has no plan; its folder goes when `stack` closes."""
    settings = Settings(
        check_outputs=False, seed=seed, budget_s=seconds, turn_ns=round(turn_ms * 1e6)
    )
    case = CaseContext(Launcher(stack.enter_context(own_folder())), settings)
    states = [ArmState(_arm(size, "base", 0, seed))]
    states += [ArmState(_arm(size, f"{effect} %", effect, seed)) for effect in effects]
    prepare_arms(case, states)
    for state in states:
        if not state.alive:
            raise SystemExit(f"{state.spec.name} ended as {state.outcome.value}: {state.detail}")
    loops = max(state.loops for state in states)
    for state in states:
        state.loops = loops
    rounds = TurnScheduler(case, references={}, base=states[0], forked=False)
    return Session(states, effects, rounds, settings, seconds)


class Sessions:
    """Sessions by condition, opened when first needed."""

    def __init__(self, stack: ExitStack, make: Callable[[ExitStack, Size], Session]) -> None:
        self._stack = stack
        self._make = make
        self._open: dict[Size, Session] = {}

    def get(self, size: Size) -> Session:
        """The session of one condition."""
        if size not in self._open:
            self._open[size] = self._make(self._stack, size)
        return self._open[size]


def _arm(size: Size, name: str, effect: int, seed: int) -> ArmSpec:
    return ArmSpec(
        name=name,
        target=f"{size.target}:make_{effect}",
        threads=size.threads,
        env=tuple(sorted(size.environment.items())),
        seed=seed,
    )
