"""The public JSON of two runs set against each other.

Every key is explained in `docs/reference/json.md`; a test holds the two together.
"""

from __future__ import annotations

from typing import Any

from torchstone.records import GroupChange, Ratio, RunComparison, RunHead
from torchstone.show.compare_fields import change_rows
from torchstone.show.document import DOCUMENT_SCHEMA, plain, to_text
from torchstone.show.run_document import mean_document, summary_document

KIND = "run comparison"


def compare_document(comparison: RunComparison) -> dict[str, Any]:
    """The comparison as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "kind": KIND,
        "definition": comparison.definition,
        "base": head_document(comparison.base),
        "new": head_document(comparison.new),
        "refused": plain(comparison.refused),
        "remedy": plain(comparison.remedy),
        "marks": plain(comparison.marks),
        "margin": comparison.margin,
        "false_discovery_rate": comparison.false_discovery_rate,
        "threshold_source": plain(comparison.threshold_source),
        "drift": {
            "value": plain(comparison.drift),
            "spread": plain(comparison.drift_spread),
            "n": comparison.drift_of,
        },
        "groups": [_group(group) for group in comparison.groups],
        "cases": [plain(row) for row in change_rows(comparison)],
    }


def compare_dumps(comparison: RunComparison, indent: int | None = 2) -> str:
    """The document as ASCII text."""
    return to_text(compare_document(comparison), indent)


def head_document(head: RunHead) -> dict[str, Any]:
    """A run without its cases."""
    return {
        "id": plain(head.id),
        "created": plain(head.created),
        "label": plain(head.label),
        "commit": plain(head.commit),
        "branch": plain(head.branch),
        "dirty": head.dirty,
        "machine_id": plain(head.machine_id),
        "machine": plain(head.machine),
        "torch": plain(head.torch),
        "origin": plain(head.origin),
        "tier": plain(head.tier),
        "suites": plain(head.suites),
        "planned": head.planned,
        "done": head.done,
        "outcomes": plain(head.outcomes),
        "state": plain(head.state),
    }


def _group(group: GroupChange) -> dict[str, Any]:
    key = group.key
    return {
        "suite": plain(key.suite),
        "scale": plain(key.scale),
        "mode": plain(key.mode),
        "precision": plain(key.precision),
        "variant": plain(key.variant),
        "device": plain(key.device),
        "threads": key.threads,
        "allocator": plain(key.allocator),
        "common": group.common,
        "paired": group.paired,
        "counts": plain(group.counts),
        "base": None if group.base is None else summary_document(group.base),
        "new": None if group.new is None else summary_document(group.new),
        "base_common": mean_document(group.base_common),
        "new_common": mean_document(group.new_common),
        "speedup": _ratio(group.speedup),
        "threshold": plain(group.threshold),
        "verdict": None if group.verdict is None else group.verdict.value,
        "compile_cold": _cost(group, "compile_cold"),
        "compile_warm": _cost(group, "compile_warm"),
        "memory": _cost(group, "memory"),
        "drift": plain(group.drift),
    }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    ends = plain(ratio.interval)
    whole = ends is not None and None not in ends
    interval = ends if whole else None
    return {"value": plain(ratio.value), "interval": interval, "level": ratio.level}


def _cost(group: GroupChange, name: str) -> dict[str, Any]:
    """The mean ratio with the threshold that it was held to; without one it is not judged."""
    mean, limits = getattr(group, name), group.cost_thresholds.get(name)
    return {
        "value": plain(mean.value),
        "n": mean.n,
        "of": mean.of,
        "case_threshold": plain(limits[0]) if limits else None,
        "threshold": plain(limits[1]) if limits else None,
        "changed": name in group.costs_changed if limits else None,
    }
