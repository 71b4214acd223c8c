r"""One sum over a 2-D array, five ways: pure Python, numba, C, NumPy and torch.

    torchstone bench examples/sum2d.py:make_python examples/sum2d.py:make_numba \
        examples/sum2d.py:make_c examples/sum2d.py:make_numpy examples/sum2d.py:make_torch

Every way gets the same numbers: the inputs are a function of the seed. The first target is the
baseline, so all speed-ups are against pure Python. numba compiles in its first call; the report
shows that cost apart (`compile cold / warm`). C is compiled before, while the target is built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np

from torchstone import Workload

ROWS, COLUMNS = 100, 150
SOURCE = Path(__file__).with_name("sum2d_c.c")


def sum2d(array: Any) -> float:
    """Two nested loops: what Python runs as it stands, and numba compiles."""
    total = 0.0
    rows, columns = array.shape
    for i in range(rows):
        for j in range(columns):
            total += array[i, j]
    return total


def numbers(seed: int) -> tuple[Any]:
    """The array that belongs to a seed."""
    return (np.random.default_rng(seed).random((ROWS, COLUMNS)),)


def make_python() -> Workload:
    """The loops, interpreted."""
    return Workload(sum2d, numbers)


def make_numba() -> Workload:
    """The same loops, compiled in the first call; `cache=True` keeps the result on disk."""
    import numba

    return Workload(numba.njit(cache=True)(sum2d), numbers)


def make_c() -> Workload:
    """The same loops in C, in a small extension module."""
    loader = ExtensionFileLoader("sum2d_c", str(compile_c()))
    spec = spec_from_loader("sum2d_c", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return Workload(module.sum2d, numbers)


def make_numpy() -> Workload:
    """One call into NumPy."""
    return Workload(np.sum, numbers)


def make_torch() -> Workload:
    """One call into torch, on the same numbers as a tensor."""
    import torch

    return Workload(torch.sum, lambda seed: (torch.from_numpy(*numbers(seed)),))


def compile_c() -> Path:
    """The extension module of this interpreter, compiled once and then found again.

    Torchstone gives every measurement a scratch folder that all its processes share.
    """
    scratch = os.environ.get("TORCHSTONE_SCRATCH")
    folder = Path(scratch) if scratch else Path(tempfile.gettempdir()) / f"sum2d-{os.getuid()}"
    ending = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    library = folder / f"sum2d_c{ending}"
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("make_c needs a C compiler: install gcc or clang, or set CC")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Compiled beside it and renamed: another process never loads half a library.
    unfinished = folder / f"sum2d_c.{os.getpid()}{ending}"
    command = [compiler, "-O2", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}"]
    command += ["-o", str(unfinished), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{compiler} could not compile {SOURCE.name}: {done.stderr.strip()}")
    unfinished.replace(library)
    return library
