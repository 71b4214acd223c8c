"""Evidence: an output written to a file, so that another process can judge it.

One JSON line that describes the leaves, then their raw values. Not pickle: reading it runs nothing.
"""

from __future__ import annotations

import json
from typing import Any

from torchstone.measure.leaves import leaf_of, raw_bytes
from torchstone.records import to_data
from torchstone.workloads import walk

LEAF_LIMIT = 1 << 22
"""Elements of a leaf that are compared; longer ones are evenly sampled."""
GRADIENT_LIMIT = 1 << 14
"""The same for each parameter's gradient, of which there may be hundreds."""


def write_evidence(path: str, output: Any) -> None:
    """Write the leaves of `output` (in training: the loss and the gradients)."""
    with open(path, "wb") as file:
        file.write(encode_evidence(output))


def encode_evidence(output: Any) -> bytes:
    """The leaves as they are now; what is filled in later does not count."""
    heads, bodies = [], []
    for name, value in walk(output, "output"):
        limit = GRADIENT_LIMIT if name.startswith("output.grad.") else LEAF_LIMIT
        kind, body = raw_bytes(value, limit)
        heads.append({"leaf": to_data(leaf_of(name, value)), "kind": kind, "bytes": len(body)})
        bodies.append(body)
    return b"".join((json.dumps(heads).encode(), b"\n", *bodies))
