"""What the compiler did: graphs, breaks and recompiles, from Dynamo's own counters."""

from __future__ import annotations

import sys
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
