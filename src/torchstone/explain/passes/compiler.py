"""What the compiler made of an arm: kernels by name, breaks and recompiles with their lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from torchstone.explain.passes.report import Compiled, region_of
from torchstone.measure.graphs import describe_graphs
from torchstone.records import ArmSpec, SourceLine

_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_REASON_LENGTH = 240
UNSAID = "Dynamo does not say; often a branch on a tensor"


def prepare_compiler(arm: ArmSpec) -> None:
    """Have generated kernels marked, so that the tracer sees each. Costs some ns a call."""
    if arm.backend in ("eager", "jit-trace", "aot_eager"):
        return
    try:
        import torch._inductor.config as config
    except ImportError:
        return
    config.cpp.enable_kernel_profile = True


def describe_compiled(late: int) -> Compiled | None:
    """From Dynamo's own records of this process; None where it was never asked to compile."""
    graphs = describe_graphs(late)
    if graphs is None or not (graphs.graphs or graphs.breaks):
        return None
    entries = _entries()
    return Compiled(graphs, _breaks(entries), _recompiles(entries), late)


def breaking_regions() -> frozenset[str]:
    """Events of the regions of which Dynamo says that they end at a graph break."""
    known = [entry for entry in _entries() if getattr(entry, "restart_reasons", None)]
    return frozenset(region_of(str(getattr(entry, "compile_id", ""))) for entry in known)


def _entries() -> list[Any]:
    """Dynamo's record of what it compiled, in the order in which it did."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return list(getattr(utils, "get_compilation_metrics", list)())


def _breaks(entries: Sequence[Any]) -> tuple[SourceLine, ...]:
    """One for each line at which compiled code goes on after a break. Its reason is with the code
    of the same function that was compiled before: the function up to the break, or from the break
    before it. Where nothing is left to go on with, as in `return f(x)`, the break has the line
    at which its code begins."""
    found: dict[tuple[str, int], SourceLine] = {}
    spoken: set[int] = set()
    for number, entry in enumerate(entries):
        name, line = _function(entry)
        file = str(entry.co_filename or "")
        if line is None or getattr(entry, "recompile_reason", None) or (file, line) in found:
            continue
        before = _before(entries, number, file, name, line)
        spoken.update(before[-1:])
        said = _restarts(entries[before[-1]]) if before else ()
        found[file, line] = SourceLine("; ".join(said) or UNSAID, file, line)
    told = {one.reason for one in found.values()}
    ends = []
    for number, entry in enumerate(entries):
        reason = "; ".join(_restarts(entry))
        again = getattr(entry, "recompile_reason", None)
        # One that breaks because a function inside it does says the same as that function.
        if reason and not again and number not in spoken and reason not in told:
            told.add(reason)
            ends.append(SourceLine(reason, *_place(entry)))
    return (*found.values(), *ends)


def _before(entries: Sequence[Any], number: int, file: str, name: str, line: int) -> list[int]:
    """The places of the same function's code among what was compiled before."""
    began = _began(entries, file, name, line)
    return [
        place
        for place, one in enumerate(entries[:number])
        if (str(one.co_filename or ""), _function(one)[0]) == (file, name)
        and _began(entries, file, name, int(one.co_firstlineno or 0)) == began
    ]


def _function(entry: Any) -> tuple[str, int | None]:
    """The name of the function in the source, and the line at which it goes on after a break."""
    name = str(getattr(entry, "co_name", "") or "")
    match = _RESUME.match(name)
    return (match.group(1), int(match.group(2))) if match else (name, None)


def _began(entries: Sequence[Any], file: str, name: str, line: int) -> int:
    """Where the function of this name and line begins: a file has many a `forward`."""
    begins = [
        int(one.co_firstlineno or 0)
        for one in entries
        if _function(one) == (name, None) and str(one.co_filename or "") == file
    ]
    return max((first for first in begins if first <= line), default=0)


def _restarts(entry: Any) -> list[str]:
    return sorted(map(_first_line, getattr(entry, "restart_reasons", None) or ()))


def _recompiles(entries: list[Any]) -> tuple[SourceLine, ...]:
    again = (entry for entry in entries if getattr(entry, "recompile_reason", None))
    return tuple(SourceLine(_first_line(one.recompile_reason), *_place(one)) for one in again)


def _place(entry: Any) -> tuple[str, int]:
    return str(entry.co_filename or ""), int(entry.co_firstlineno or 0)


def _first_line(text: Any) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    if not lines:
        return ""
    explained = next((line for line in lines if line.startswith("Explanation:")), "")
    joined = f"{lines[0]}. {explained.removeprefix('Explanation: ')}" if explained else lines[0]
    return joined[:_REASON_LENGTH]
