"""Arms looked at but not timed: contract, agreement with the reference, behaviour at the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.conductor.case import Course, Events, Settings, Silent
from torchstone.conductor.clean import clean
from torchstone.conductor.launch import Launcher
from torchstone.conductor.patience import patience
from torchstone.conductor.run import case_folder, prepare_arms
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, ended_by
from torchstone.records import ArmSpec, Measurement, UsageError

BEHAVIOUR_KEPT = 160
BOUNDARY_CASES = ("batch of one", "empty batch", "non-contiguous", "wrong dtype", "wrong device")


@dataclass(frozen=True)
class Inspection:
    """One arm: its record without samples, and what it does in each boundary case."""

    measurement: Measurement
    boundary: dict[str, str]


def inspect_arms(
    arms: Sequence[ArmSpec], settings: Settings, events: Events | None = None
) -> list[Inspection]:
    """The solo pass of every arm, then the boundary cases of those that ran."""
    events = events or Silent()
    states = [ArmState(spec) for spec in arms]
    with case_folder() as folder:
        launcher = Launcher(folder)
        prepare_arms(launcher, states, settings, events, Course())
        return [
            Inspection(
                state.measurement(),
                _boundary(launcher, state, settings, events) if state.solo else {},
            )
            for state in states
        ]


def _boundary(
    launcher: Launcher, state: ArmState, settings: Settings, events: Events
) -> dict[str, str]:
    """A case that kills the worker is recorded as such, and the others get a new worker."""
    events.phase(f"{state.spec.name}: boundary inputs")
    found: dict[str, str] = {}
    while len(found) < len(BOUNDARY_CASES):
        left = [case for case in BOUNDARY_CASES if case not in found]
        worker = launcher.start(state.spec)
        try:
            found.update(
                worker.ask(
                    {"do": "boundary", "arm": state.spec, "cases": left},
                    patience(settings, slack_s=settings.build_timeout_s),
                )
            )
        except (ArmEnded, UsageError) as error:
            ended = ended_by(error, worker.phase) if isinstance(error, UsageError) else error
            reached = worker.phase.removeprefix("boundary ")
            fatal = reached if reached in left else left[0]
            found[fatal] = f"{ended.outcome.value}: {ended.detail.message}"
        finally:
            worker.kill()
    # They quote user code, and a contract is made to be shown around.
    return {case: clean(text, state.spec)[:BEHAVIOUR_KEPT] for case, text in found.items()}
