"""What the compiler did: graphs, breaks and recompiles, from Dynamo's own counters."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

from torchstone.records import Graphs

_REASON_LENGTH = 200


def _dynamo_utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def compile_count() -> int:
    """Frames compiled so far in this process; grows with each recompile."""
    utils = _dynamo_utils()
    return int(utils.counters["frames"]["ok"]) if utils is not None else 0


def describe_graphs(late: int = 0) -> Graphs | None:
    """Everything captured in this process, or None where Dynamo was never loaded."""
    utils = _dynamo_utils()
    if utils is None:
        return None
    breaks = utils.counters["graph_break"]
    return Graphs(
        graphs=int(utils.counters["stats"]["unique_graphs"]),
        breaks=int(sum(breaks.values())),
        break_reasons=tuple(str(r).split("\n")[0][:_REASON_LENGTH] for r in breaks),
        recompiles=_recompiles(utils),
        late_recompiles=late,
    )


def _recompiles(utils: Any) -> int:
    metrics: list[Any] = getattr(utils, "get_compilation_metrics", list)()
    return sum(1 for entry in metrics if getattr(entry, "recompile_reason", None))


# What watches this process: tracers, profilers, and modes that see each op of torch.
#
# Looked for after each turn, so that what was left on is seen. What a step turns on and off again
# by itself is the step's own work.


def active_profilers() -> tuple[str, ...]:
    """Names of what is on now, such as `sys.setprofile` or `dispatch mode FlopCounterMode`."""
    found = [*_of_python()]
    torch = sys.modules.get("torch")
    if torch is not None:
        found += _of_torch(torch)
    return tuple(found)


def _of_python() -> Iterator[str]:
    if sys.getprofile() is not None:
        yield "sys.setprofile"
    if sys.gettrace() is not None:
        yield "sys.settrace"
    monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.12 and newer
    for number in range(6 if monitoring is not None else 0):
        name = monitoring.get_tool(number)
        if name is not None and monitoring.get_events(number):
            yield f"sys.monitoring tool {name}"
    tracemalloc = sys.modules.get("tracemalloc")
    if tracemalloc is not None and tracemalloc.is_tracing():
        yield "tracemalloc"


def _of_torch(torch: Any) -> Iterator[str]:
    if _ask(torch, "autograd._profiler_enabled"):
        yield "torch.profiler"
    if _ask(torch, "is_anomaly_enabled"):
        yield "torch.autograd anomaly mode"
    for mode in _ask(torch, "utils._python_dispatch._get_current_dispatch_mode_stack") or ():
        yield f"dispatch mode {type(mode).__name__.lstrip('_')}"


_DEBUG_VARIABLES = (
    *("CUDA_LAUNCH_BLOCKING", "MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE", "TORCH_LOGS"),
    *("TORCH_COMPILE_DEBUG", "TORCHDYNAMO_VERBOSE", "TORCH_TRACE", "PYTHONASYNCIODEBUG"),
)
_DEBUG_CALLS = {
    "get_deterministic_debug_mode": "torch.set_deterministic_debug_mode",
    "are_deterministic_algorithms_enabled": "torch.use_deterministic_algorithms",
}


def debug_settings() -> tuple[str, ...]:
    """What is on that helps to find faults and costs time."""
    found = [name for name in _DEBUG_VARIABLES if os.environ.get(name, "0") not in ("", "0")]
    if sys.flags.dev_mode:
        found.append("Python's development mode")
    if os.environ.get("PYTHONMALLOC", "").endswith("debug"):
        found.append("PYTHONMALLOC")
    if gc.get_debug():
        found.append("gc.set_debug")
    torch = sys.modules.get("torch")
    if torch is not None:
        found += [name for place, name in _DEBUG_CALLS.items() if _ask(torch, place)]
    return tuple(sorted(set(found)))


def _ask(torch: Any, place: str) -> Any:
    """What the function at a dotted place says; None if this torch has no such function."""
    value = torch
    try:
        for part in place.split("."):
            value = getattr(value, part)
        return value()
    except Exception:  # a private name of torch may go; a measurement is worth more
        return None
