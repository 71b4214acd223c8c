"""Torchstone: tells true PyTorch performance from false.

The Python API: `bench`, `compare`, `timeit` and `tune` measure and return records; `profile` looks
at a stretch of code; `monitor` watches a training; `Workload` describes what a target measures.
Everything is imported on first use, so that `import torchstone` costs nothing and the same file can
stand in a worker, which has no `lab`.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would double start-up

if TYPE_CHECKING:
    from torchstone.lab.api import bench, compare, timeit, tune
    from torchstone.monitor.session import monitor
    from torchstone.profile.context import profile
    from torchstone.workloads import Workload

__all__ = ["Workload", "__version__", "bench", "compare", "monitor", "profile", "timeit", "tune"]

_HOME = {
    "Workload": "torchstone.workloads",
    "bench": "torchstone.lab.api",
    "compare": "torchstone.lab.api",
    "timeit": "torchstone.lab.api",
    "tune": "torchstone.lab.api",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("monitor", "profile"):  # packages of that name, which can be called
        return import_module(f"torchstone.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'torchstone' has no attribute {name!r}")
    found: object = getattr(import_module(_HOME[name]), name)
    return found


def load_ipython_extension(shell: object) -> None:
    """`%load_ext torchstone`: the magics `%torchstone` and `%%torchstone`."""
    from importlib import import_module

    import_module("torchstone.lab.magics").load(shell)
