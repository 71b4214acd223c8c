"""Looks at the steps of an arm, by `explain` and `profile`: at which arms, and the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchstone.records import ArmSpec, Measurement, Result
from torchstone.web.cells import command_line

_PLAIN = ArmSpec("")
_OF_ARMS = ("mode", "precision", "device", "threads")
_OF_PROCESSES = ("python",)


def arms_looked_at(result: Result, variant: str = "") -> tuple[Measurement, ...]:
    """All arms of a result, or the baseline and those under one variant."""
    base, rest = result.arms[:1], result.arms[1:]
    return (*base, *(one for one in rest if not variant or one.arm.variant == variant))


def machine_of(measured: Measurement) -> str:
    """On which machine it was measured; empty where that is not known."""
    return measured.environment.machine_id if measured.environment else ""


def explain_commands(arms: Iterable[Measurement]) -> str:
    """A line for every arm that `torchstone explain` can look at.

    With `--vs` it looks at the step in eager as well, so that a baseline needs no line of its own.
    """
    wanted = [one.arm for one in arms if one.arm.target]
    covered = [_plain(arm) for arm in wanted if arm.variant != _PLAIN.variant]
    lines = []
    for arm in wanted:
        compared = arm.variant != _PLAIN.variant
        if not compared and _plain(arm) in covered:
            continue
        words = ["torchstone", "explain", arm.target, *_settings(arm, (*_OF_ARMS, *_OF_PROCESSES))]
        for name, value in arm.env:
            words += ["--env", f"{name}={value}"]
        lines.append(command_line([*words, "--vs", arm.variant] if compared else words))
    return "\n".join(dict.fromkeys(lines))


def profile_commands(arms: Iterable[Measurement]) -> str:
    """A line for every arm that `torchstone profile` can profile: in this interpreter, with these
    variables."""
    wanted = [one.arm for one in arms if one.arm.target]
    lines = [
        command_line(["torchstone", "profile", arm.target, *_settings(arm, ("variant", *_OF_ARMS))])
        for arm in wanted
        if not arm.env and arm.python is None
    ]
    return "\n".join(dict.fromkeys(lines))


def shapes_words(arms: Iterable[ArmSpec]) -> str:
    """A sentence where samples went through several shapes, as a look at a step never does."""
    shapes = max((arm.shapes for arm in arms), default=1)
    return f"Of one shape; the samples went through {shapes} in turn." if shapes > 1 else ""


def _plain(arm: ArmSpec) -> ArmSpec:
    return replace(arm, name="", variant=_PLAIN.variant)


def _settings(arm: ArmSpec, names: Sequence[str]) -> list[str]:
    """What differs from the default; the allocator always: its default is the machine's."""
    words: list[str] = []
    for name in names:
        value = getattr(arm, name)
        if value != getattr(_PLAIN, name):
            words += [f"--{name}", str(value)]
    return [*words, "--allocator", arm.allocator]
