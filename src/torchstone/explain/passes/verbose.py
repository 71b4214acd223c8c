"""oneDNN and MKL asked what they did: which kernels, on which instructions, how long.

Both can be told to write a line for each call to the standard output. That goes to a file for one
block of steps, in a pass of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import IO, Any

from torchstone.explain.passes.report import Library

MOST_BYTES = 8 << 20
_MKL = re.compile(r"^MKL_VERBOSE (\w+)\(.*\) ([\d.]+)(ns|us|ms|s)\b")
_SCALES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def library_lines(block: Callable[[], object], loops: int) -> tuple[Library, ...]:
    """Of one block of `loops` steps; empty where the libraries do not speak."""
    try:
        with tempfile.TemporaryFile() as file, _stdout_to(file), _verbose():
            block()
            file.seek(0)
            text = file.read(MOST_BYTES).decode(errors="replace")
    except (OSError, RuntimeError, AttributeError, AssertionError):
        return ()
    return parse(text, loops)


@contextlib.contextmanager
def _verbose() -> Iterator[None]:
    import torch

    libraries: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.mkl)
    with contextlib.ExitStack() as stack:
        for library in libraries:
            if library.is_available():
                stack.enter_context(library.verbose(library.VERBOSE_ON))
        yield


@contextlib.contextmanager
def _stdout_to(file: IO[bytes]) -> Iterator[None]:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.fflush(None)
    kept = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def parse(text: str, loops: int) -> tuple[Library, ...]:
    """Lines of both libraries, summed by kind and implementation; the dearest first."""
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for line in text.splitlines():
        found = _onednn(line) or _mkl(line)
        if found is not None:
            library, kind, implementation, ns = found
            entry = sums[library, kind, implementation]
            entry[0] += 1
            entry[1] += ns
    made = [
        Library(library, kind, implementation, calls / loops, ns / loops)
        for (library, kind, implementation), (calls, ns) in sums.items()
    ]
    return tuple(sorted(made, key=lambda one: -one.ns))


def _onednn(line: str) -> tuple[str, str, str, float] | None:
    """`onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx2,…,0.12` (milliseconds)."""
    words = line.split(",")
    if not words[0].startswith(("onednn_verbose", "dnnl_verbose")) or "exec" not in words:
        return None
    place = words.index("exec")
    try:
        return "oneDNN", words[place + 2], words[place + 3], float(words[-1]) * 1e6
    except (IndexError, ValueError):
        return None


def _mkl(line: str) -> tuple[str, str, str, float] | None:
    """`MKL_VERBOSE SGEMM(N,N,…) 12.3us CNR:OFF …`."""
    found = _MKL.match(line)
    if found is None:
        return None
    name, value, unit = found.groups()
    kind = "gemm" if "GEMM" in name.upper() else name.lower()
    return "MKL", kind, name.lower(), float(value) * _SCALES[unit]
