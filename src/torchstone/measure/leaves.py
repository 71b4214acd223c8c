"""Leaves: what a tensor, array or scalar is, and a fingerprint of its values."""

from __future__ import annotations

import ctypes
import hashlib
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from torchstone.records import Leaf
from torchstone.workloads import is_number_list, walk

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
