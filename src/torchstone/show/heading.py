"""The first lines of a report: what was measured, how, and on what machine, in a few words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchstone.records import ArmSpec, Environment, GitState, Result
from torchstone.show.style import Style
from torchstone.show.text import cells, shorten
from torchstone.show.units import format_bytes

_MARKETING = re.compile(r"\((?:R|TM|C)\)|\bCPU\b|@.*$|\bProcessor\b|\b\d+-Core\b", re.IGNORECASE)
MOST_TARGETS = 3
"""Longer lists of targets are counted, not named: the table names the arms."""


def what(result: Result) -> list[str]:
    """The command's kind and its subject, then the settings that all arms share."""
    specs = [measurement.arm for measurement in result.arms]
    targets = _distinct(_subject(spec) for spec in specs)
    subject = ", ".join(targets) if len(targets) <= MOST_TARGETS else f"{len(specs)} arms"
    if result.label and result.label != subject:
        subject = f"{result.label}: {subject}" if subject else result.label
    settings = [
        _shared(spec.mode for spec in specs if spec.statement is None),
        _shared(spec.precision for spec in specs if spec.statement is None),
        _shared(spec.device for spec in specs),
        _shared("CPU time" for spec in specs if spec.statement and spec.statement.clock == "cpu"),
        _threads(result),
        _shared(f"{spec.shapes} input shapes" for spec in specs if spec.shapes > 1),
        _allocator(specs),
        "" if result.origin == "here" else f"from {result.origin}",
    ]
    return [part for part in (f"{result.kind} {subject}".strip(), *settings) if part]


def machine(result: Result) -> list[str]:
    """Processor, memory, system, interpreter and torch of the arms; differing ones are listed."""
    found = [m.environment for m in result.arms if m.environment is not None]
    parts = [
        _shared(_processor(environment) for environment in found),
        _shared(format_bytes(e.memory_bytes).replace(".00", "") for e in found if e.memory_bytes),
        _shared(e.os.get("system", "") for e in found),
        _shared(_python(e) for e in found),
        _shared(f"torch {v}" for e in found if (v := e.torch.get("version"))),
        _shared(_revision(e) for e in found),
    ]
    return [part for part in parts if part]


def flow(parts: Iterable[str], width: int, style: Style) -> list[str]:
    """Parts joined by dots, a new line where the next part would not fit."""
    dot, lines = style.glyphs.dot, [""]
    for part in parts:
        text = shorten(style.safe(part), width, style.glyphs.ellipsis)
        if not lines[-1]:
            lines[-1] = text
        elif cells(lines[-1]) + cells(dot) + cells(text) <= width:
            lines[-1] += dot + text
        else:
            lines.append(text)
    return [line for line in lines if line]


def _subject(spec: ArmSpec) -> str:
    return spec.statement.stmt if spec.statement else spec.target


def _distinct(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]


def _shared(values: Iterable[str]) -> str:
    return " / ".join(_distinct(values)[:MOST_TARGETS])


def _threads(result: Result) -> str:
    counts = []
    for measurement in result.arms:
        environment = measurement.environment
        known = environment.threads if environment else {}
        count = measurement.arm.threads or known.get("torch")
        if count:
            counts.append(str(count))
    found = _shared(counts)
    return f"{found} thread{'' if found == '1' else 's'}" if found else ""


def _allocator(specs: list[ArmSpec]) -> str:
    found = _distinct(spec.allocator for spec in specs)
    if len(found) == 1:
        return allocator_title(found[0])
    return f"allocator {' / '.join(found)}" if found else ""


def allocator_title(name: str) -> str:
    """`allocator keeps memory`: one of `records.ALLOCATORS` in words."""
    known = {"keep": "allocator keeps memory", "default": "the system's allocator"}
    return known.get(name) or f"allocator {name}"


def processor_name(model: str) -> str:
    """The processor's name without what only its maker needs."""
    return " ".join(_MARKETING.sub(" ", model).split()).rstrip(" ,")


def _processor(environment: Environment) -> str:
    model = processor_name(environment.cpu.get("model", ""))
    count = environment.cpu.get("affinity") or environment.cpu.get("logical_cores")
    return ", ".join(part for part in (model, f"{count} CPUs" if count else "") if part)


def _python(environment: Environment) -> str:
    version = environment.python.get("version", "")
    free = " without GIL" if environment.python.get("gil") == "off" else ""
    return f"Python {version}{free}" if version else ""


def _revision(environment: Environment) -> str:
    return revision(environment.git)


def revision(git: GitState | None) -> str:
    """`git 0123456789`, and whether files differ from it."""
    return f"git {git.commit[:10]}{' (changed)' if git.dirty else ''}" if git else ""
