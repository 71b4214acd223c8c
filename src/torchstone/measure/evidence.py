"""Evidence: an output written to a file, so that another process can evaluate it.

One JSON line that describes the leaves, then their raw values. Not pickle: reading it runs nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchstone.measure.arm import Phase, build
from torchstone.records import (
    DROPOUT_NOTE,
    LEAF_GROUPS,
    ArmSpec,
    Contract,
    Leaf,
    describe_leaf,
    first_line,
    to_data,
)
from torchstone.variants import Prepared
from torchstone.workloads import Inputs, is_number_list, map_nest, walk
from torchstone.workloads.load import seed_everything

# Leaves: what a tensor, array or scalar is, and a fingerprint of its values.

SAMPLE_ELEMENTS = 1 << 16
"""Fingerprints look at this many evenly spaced elements: enough to tell weights apart."""


def leaf_of(path: str, value: Any) -> Leaf:
    """Describe one leaf."""
    torch = sys.modules.get("torch")
    exact = f"{type(value).__module__}.{type(value).__qualname__}"
    if torch is not None and isinstance(value, torch.Tensor):
        return Leaf(
            path=path,
            kind="torch",
            dtype=str(value.dtype).removeprefix("torch."),
            shape=tuple(int(n) for n in value.shape),
            device=str(value.device),
            memory_format=_memory_format(torch, value),
            requires_grad=bool(value.requires_grad),
            type_name=exact,
        )
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        contiguous = value.ndim == 0 or value.flags.c_contiguous
        return Leaf(
            path,
            "numpy",
            str(value.dtype),
            tuple(int(n) for n in value.shape),
            memory_format="contiguous" if contiguous else "strided",
            type_name=exact,
        )
    if isinstance(value, (bool, int, float, complex, str)):
        dtype = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}.get(
            type(value), "str"
        )
        return Leaf(path, "python", dtype, type_name=exact)
    if is_number_list(value):
        dtype = "float64" if float in {*map(type, value)} else "int64"
        return Leaf(path, "python", dtype, (len(value),), type_name=exact)
    return Leaf(path, "object", exact, type_name=exact)


def _memory_format(torch: Any, tensor: Any) -> str:
    if tensor.layout != torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.is_contiguous():
        return "contiguous"
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return "channels_last"
    return "strided"


def leaves_of(value: Any, path: str) -> tuple[Leaf, ...]:
    """Every leaf of a nest."""
    return tuple(leaf_of(where, leaf) for where, leaf in walk(value, path))


def raw_bytes(value: Any, limit: int) -> tuple[str, bytes]:
    """A leaf's values as little-endian `f8`, `f4`, `i8` or text; evenly sampled beyond `limit`.

    Half precisions are widened, which is exact; complex numbers become pairs.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_bytes(torch, value, limit)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _array_bytes(numpy, numpy.asarray(value), limit)
    if is_number_list(value):
        return _list_bytes(value, limit)
    if isinstance(value, complex):
        return "f8", struct.pack("<2d", value.real, value.imag)
    if isinstance(value, float):
        return "f8", struct.pack("<d", value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "i8", struct.pack("<q", value)
    if isinstance(value, (int, str)):
        return "text", str(value).encode(errors="surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return "text", bytes(value[: 8 * limit])
    return "object", type(value).__qualname__.encode()


def _list_bytes(values: Sequence[float], limit: int) -> tuple[str, bytes]:
    sampled = values[:: -(-len(values) // limit)]
    try:
        if float in {*map(type, values)}:
            return "f8", struct.pack(f"<{len(sampled)}d", *sampled)
        return "i8", struct.pack(f"<{len(sampled)}q", *sampled)
    except (OverflowError, struct.error):  # integers without bounds
        return "text", repr(list(sampled)).encode()


def _tensor_bytes(torch: Any, tensor: Any, limit: int) -> tuple[str, bytes]:
    with torch.no_grad():
        flat = tensor.detach()
        if flat.layout != torch.strided:
            flat = flat.to_dense()
        if flat.is_complex():
            flat = torch.view_as_real(flat.resolve_conj())
        flat = flat.reshape(-1)
        if flat.numel() > limit:
            flat = flat[:: -(-flat.numel() // limit)]
        if flat.is_floating_point():
            kind = "f8" if flat.dtype == torch.float64 else "f4"
            flat = flat.to(device="cpu", dtype=torch.float64 if kind == "f8" else torch.float32)
        else:
            kind, flat = "i8", flat.to(device="cpu", dtype=torch.int64)
        flat = flat.contiguous()
        size = flat.numel() * flat.element_size()
        return kind, ctypes.string_at(flat.data_ptr(), size) if size else b""


def _array_bytes(numpy: Any, array: Any, limit: int) -> tuple[str, bytes]:
    if array.dtype.kind == "c":
        array = array.astype("complex128").ravel().view("float64")
    if array.dtype.kind not in "fiub":
        return "text", repr(array.tolist()).encode()[: 8 * limit]
    flat = array.reshape(-1)
    if flat.size > limit:
        flat = flat[:: -(-flat.size // limit)]
    kind = "i8" if array.dtype.kind in "iub" else ("f8" if array.dtype.itemsize >= 8 else "f4")
    return kind, numpy.ascontiguousarray(flat.astype(f"<{kind}")).tobytes()


def fingerprint(named: Iterable[tuple[str, Any]]) -> str:
    """A short hash over names, shapes and sampled values."""
    digest = hashlib.blake2b(digest_size=12)
    for name, value in named:
        leaf = leaf_of(name, value)
        digest.update(f"{name}|{leaf.dtype}|{leaf.shape}|".encode())
        digest.update(raw_bytes(value, SAMPLE_ELEMENTS)[1])
    return digest.hexdigest()


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


# The contract of an arm as it was found in the worker.


def describe_contract(arm: ArmSpec, prepared: Prepared, inputs: Inputs, output: Any) -> Contract:
    """Inputs, outputs, state and modes of one call."""
    torch = sys.modules.get("torch")
    nest: dict[Any, Any] = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    module = prepared.module
    named = list(module.named_parameters()) if module is not None else []
    return Contract(
        inputs=leaves_of(nest, "input"),
        outputs=leaves_of(output, "output"),
        training=prepared.training if module is None else bool(module.training),
        grad_enabled=bool(torch.is_grad_enabled()) if torch is not None else False,
        autocast=prepared.autocast,
        parameters=sum(p.numel() for _, p in named),
        parameter_dtypes=_by_dtype(named),
        weights_hash="",
        inputs_hash=fingerprint(walk(nest, "input")),
        seed=arm.seed,
        determinism=_determinism(torch),
        notes=(
            *prepared.notes,
            f"allocator: {arm.allocator}",
            *((DROPOUT_NOTE,) if _drops_out(torch, module) else ()),
        ),
    )


def _drops_out(torch: Any, module: Any) -> bool:
    if torch is None or module is None:
        return False
    kind = torch.nn.modules.dropout._DropoutNd
    return any(isinstance(one, kind) and one.training and one.p > 0 for one in module.modules())


def _by_dtype(named: list[tuple[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for _, parameter in named:
        counts[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return dict(counts)


def weights_fingerprint(module: Any) -> str:
    """Of parameters and buffers, before the first step changes them."""
    if module is None:
        return ""
    return fingerprint([*module.named_parameters(), *module.named_buffers()])


def _determinism(torch: Any) -> dict[str, bool]:
    if torch is None:
        return {}
    return {
        "deterministic_algorithms": bool(torch.are_deterministic_algorithms_enabled()),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
    }


# What an arm does at the edges of its contract: one row, none, other strides, type, device.

_LONGEST_MESSAGE = 10_000
"""The conductor cuts it shorter when it has looked for secrets: a part of one cannot be told."""


def boundary_behaviour(arm: ArmSpec, phase: Phase, cases: Sequence[str]) -> dict[str, str]:
    """What came of each case: the form of the output, or the error's kind and first line."""
    built = build(arm, phase)
    example = built.inputs(arm.seed)
    found: dict[str, str] = {}
    for case in cases:
        phase(f"boundary {case}")
        inputs = change_tensors(example, CASES[case])
        if inputs is None:
            found[case] = "does not apply"
            continue
        try:
            output = built.call(inputs)
        except Exception as error:  # any error is a behaviour, and is what we came to see
            found[case] = f"{type(error).__name__}: {first_line(error)}"[:_LONGEST_MESSAGE]
        else:
            found[case] = "; ".join(
                f"{leaf.path} {describe_leaf(leaf)}" for leaf in leaves_of(output, "output")
            )
    return found


def change_tensors(inputs: Inputs, change: Callable[[Any, int | None], Any]) -> Inputs | None:
    """The inputs with every tensor changed; None where no tensor can be."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    tensors = [x for _, x in walk((inputs.args, inputs.kwargs), "") if isinstance(x, torch.Tensor)]
    batch = next((int(t.shape[0]) for t in tensors if t.dim()), None)
    changed = 0

    def apply(leaf: Any) -> Any:
        nonlocal changed
        if not isinstance(leaf, torch.Tensor):
            return leaf
        new = change(leaf, batch)
        changed += new is not leaf
        return new

    made = Inputs(map_nest(inputs.args, apply), map_nest(dict(inputs.kwargs), apply))
    return made if changed else None


def _rows(count: int) -> Callable[[Any, int | None], Any]:
    def change(tensor: Any, batch: int | None) -> Any:
        shared = batch is not None and tensor.dim() and tensor.shape[0] == batch and batch > count
        return tensor[:count].clone() if shared else tensor

    return change


def permuted(tensor: Any, _: int | None = None) -> Any:
    """The same values with strides in another order."""
    if tensor.dim() < 2 or tensor.numel() < 2:
        return tensor
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _wrong_dtype(tensor: Any, batch: int | None) -> Any:
    return tensor.long() if tensor.is_floating_point() else tensor.float()


def _wrong_device(tensor: Any, batch: int | None) -> Any:
    return tensor.to("meta" if tensor.device.type == "cpu" else "cpu")


CASES: dict[str, Callable[[Any, int | None], Any]] = {
    "batch of one": _rows(1),
    "empty batch": _rows(0),
    "non-contiguous": permuted,
    "wrong dtype": _wrong_dtype,
    "wrong device": _wrong_device,
}
