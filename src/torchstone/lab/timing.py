"""`torchstone timeit`: statements, timed as `python -m timeit` times them, with evidence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from torchstone.conductor import Events, Settings
from torchstone.lab.bench import measure
from torchstone.lab.recording import Recorder
from torchstone.lab.request import (
    check_arm,
    check_settings,
    distinct,
    repeated,
    settings_words,
    with_effort,
)
from torchstone.lab.secrets import public_words
from torchstone.machine.memory import usual_allocator
from torchstone.machine.redact import without_secrets
from torchstone.measure.arm import compile_statement
from torchstone.records import ArmSpec, Result, Statement

BUDGET_S = 3.0
"""`python -m timeit` takes one to two seconds; fresh processes take a little more."""
_NAME_LENGTH = 40


def time_statements(
    statements: Sequence[str],
    setup: str,
    settings: Settings,
    *,
    python: str | None = None,
    clock: str = "wall",
    allocator: str = "",
    threads: int | None = None,
    recorder: Recorder | None = None,
    events: Events | None = None,
) -> Result:
    """Each statement is an arm; several are compared with the first."""
    check_settings(settings)
    # Nothing is built: what an execution may take, the first one may take too.
    longest = max(settings.build_timeout_s, settings.step_timeout_s)
    settings = replace(settings, build_timeout_s=longest)
    allocator = allocator or usual_allocator()
    common = ArmSpec(
        name="", python=python, allocator=allocator, seed=settings.seed, threads=threads
    )
    arms = distinct([_arm(Statement(stmt, setup, clock), common) for stmt in statements])
    for arm in arms:
        check_arm(arm)
    command = public_words(command_of(statements, setup, settings, common, clock))
    return measure(arms, settings, recorder, events, command, "timeit")


def command_of(
    statements: Sequence[str], setup: str, settings: Settings, common: ArmSpec, clock: str
) -> tuple[str, ...]:
    """The command line that asks for the same again."""
    plain = with_effort(settings.effort)
    said = replace(settings, budget_s=plain.budget_s, build_timeout_s=plain.build_timeout_s)
    counts: dict[str, int | str | None] = {
        "-n": settings.loops,
        "-r": settings.samples,
        "--threads": common.threads,
        "--python": common.python,
    }
    return (
        *("torchstone", "timeit"),
        *(word for flag, n in counts.items() if n is not None for word in (flag, str(n))),
        *("--allocator", common.allocator),
        *settings_words(said),
        *(("-s", setup) if setup != "pass" else ()),
        *(("-p",) if clock == "cpu" else ()),
        *(("--budget", f"{settings.budget_s:g}s") if settings.budget_s != BUDGET_S else ()),
        *repeated("--vs", statements[1:]),
        *(("--",) if statements[0].startswith("-") else ()),
        statements[0],
    )


def _arm(statement: Statement, common: ArmSpec) -> ArmSpec:
    if common.python is None:
        compile_statement(statement)  # another interpreter may know syntax that ours does not
    name = " ".join(without_secrets(statement.stmt, os.environ).split())
    name = name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 3] + "..."
    return replace(common, name=name, statement=statement)
