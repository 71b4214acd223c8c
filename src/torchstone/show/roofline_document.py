"""The roofline as JSON. Every key is explained in `docs/reference/json.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchstone.show.document import plain, to_text

if TYPE_CHECKING:
    from torchstone.explain import Roofline

ROOFLINE_SCHEMA = 1


def roofline_document(found: Roofline) -> dict[str, Any]:
    """The roofline as plain data, with the rates of its points."""
    data: dict[str, Any] = {"schema": ROOFLINE_SCHEMA, "kind": "roofline", **plain(found)}
    data["points"] = [
        {
            **plain(point),
            "flops_per_s": plain(point.rate),
            "bytes_per_s": plain(point.bandwidth),
            "flops_per_byte": plain(point.intensity),
        }
        for point in found.points
    ]
    return data


def roofline_dumps(found: Roofline) -> str:
    """The document as ASCII text."""
    return to_text(roofline_document(found))
