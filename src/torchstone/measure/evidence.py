"""Evidence: an output written to a file, so that another process can judge it.

One JSON line that describes the leaves, then their raw values. Not pickle: reading it runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from torchstone.measure.leaves import leaf_of, raw_bytes
from torchstone.records import LEAF_GROUPS, to_data
from torchstone.variants import Prepared
from torchstone.workloads import Inputs, walk
from torchstone.workloads.draw import seed_everything

LEAF_LIMIT = 1 << 22
"""Elements of a leaf that are compared; longer ones are evenly sampled."""
GRADIENT_LIMIT = 1 << 14
"""The same for each parameter's gradient and each buffer, of which there may be hundreds."""
MOST_REPEATS = 32
"""A loss scale begins at 2**16 and is halved after each step that overflows."""


def checked_call(
    prepared: Prepared, call: Callable[[Inputs], Any], inputs: Inputs, seed: int
) -> Any:
    """One seeded call and what is compared of it."""
    seed_everything(seed)
    return true_evidence(prepared, call, inputs, seed, call(inputs))


def true_evidence(
    prepared: Prepared, call: Callable[[Inputs], Any], inputs: Inputs, seed: int, output: Any
) -> Any:
    """What is compared of a call that was made already.

    A step whose gradients overflowed the loss scale has updated nothing and halved the scale, as
    in any training; it is made again, because its gradients say nothing about the arm.
    """
    for _ in range(MOST_REPEATS):
        if not prepared.overflowed():
            break
        seed_everything(seed)
        output = call(inputs)
    return prepared.evidence(output)


def write_evidence(path: str, output: Any) -> None:
    """Write the leaves of `output` (in training: the loss, the gradients, running statistics)."""
    with open(path, "wb") as file:
        file.write(encode_evidence(output))


def encode_evidence(output: Any) -> bytes:
    """The leaves as they are now; what is filled in later does not count."""
    heads, bodies = [], []
    for name, value in walk(output, "output"):
        limit = GRADIENT_LIMIT if name.startswith(LEAF_GROUPS) else LEAF_LIMIT
        kind, body = raw_bytes(value, limit)
        heads.append({"leaf": to_data(leaf_of(name, value)), "kind": kind, "bytes": len(body)})
        bodies.append(body)
    return b"".join((json.dumps(heads).encode(), b"\n", *bodies))
