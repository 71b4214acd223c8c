"""What the compiler made of an arm: kernels by name, breaks and recompiles with their lines."""

from __future__ import annotations

import re
import sys
from typing import Any

from torchstone.explain.passes.names import fused_ops
from torchstone.explain.passes.report import Break, Compiled, Fused
from torchstone.measure.graphs import describe_graphs
from torchstone.records import ArmSpec

_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_REASON_LENGTH = 240


def prepare_compiler(arm: ArmSpec) -> None:
    """Have generated kernels marked, so that the tracer sees each. Costs some ns a call."""
    if arm.variant.split("+")[0] in ("eager", "jit-trace", "aot_eager"):
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
    utils: Any = sys.modules["torch._dynamo.utils"]
    entries = list(getattr(utils, "get_compilation_metrics", list)())
    return Compiled(
        graphs=graphs,
        breaks=_breaks(entries, graphs.break_reasons),
        recompiles=_recompiles(entries),
        kernels=_kernels(),
        late=late,
    )


def _breaks(entries: list[Any], reasons: tuple[str, ...]) -> tuple[Break, ...]:
    """One for each place at which compiled code goes on after a break."""
    said = [text for entry in entries for text in _restarts(entry)] or list(reasons)
    found: list[Break] = []
    for entry in entries:
        match = _RESUME.match(str(getattr(entry, "co_name", "") or ""))
        if match is None or getattr(entry, "recompile_reason", None):
            continue
        reason = said[min(len(found), len(said) - 1)] if said else ""
        found.append(Break(reason, str(entry.co_filename or ""), int(match.group(2))))
    return tuple(found)


def _restarts(entry: Any) -> list[str]:
    return [_first_line(text) for text in getattr(entry, "restart_reasons", None) or ()]


def _recompiles(entries: list[Any]) -> tuple[Break, ...]:
    return tuple(
        Break(
            _first_line(entry.recompile_reason),
            str(entry.co_filename or ""),
            int(entry.co_firstlineno or 0),
        )
        for entry in entries
        if getattr(entry, "recompile_reason", None)
    )


def _first_line(text: Any) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    if not lines:
        return ""
    explained = next((line for line in lines if line.startswith("Explanation:")), "")
    joined = f"{lines[0]}. {explained.removeprefix('Explanation: ')}" if explained else lines[0]
    return joined[:_REASON_LENGTH]


def _kernels() -> tuple[Fused, ...]:
    """Kernels by name, with the ops that inductor says they came from, else those of the name."""
    debug: Any = sys.modules.get("torch._inductor.debug")
    known: dict[str, Any] = dict(
        getattr(debug, "_inductor_triton_kernel_to_post_grad_node_info", {})
    )
    known.update(getattr(debug, "_inductor_kernel_stack_trace", {}) or {})
    return tuple(Fused(str(name), fused_ops(str(name))) for name in known)
