"""Settings of the process that a worker inherits: threads, variables, the allocator."""

from __future__ import annotations

import os
from collections.abc import Iterator

from torchstone.machine.doctor.base import FunctionCheckup, fix, note, ok, warn
from torchstone.machine.doctor.view import View
from torchstone.machine.doctor.words import count
from torchstone.records import Finding

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SLOWING = {
    "CUDA_LAUNCH_BLOCKING": "every kernel waits for the one before it",
    "MALLOC_CHECK_": "the C library checks every block of memory",
    "MALLOC_PERTURB_": "the C library writes to every freed block",
    "PYTHONDEVMODE": "Python runs with its debugging checks",
    "PYTHONTRACEMALLOC": "Python keeps a record of every block",
    "TORCHDYNAMO_DISABLE": "torch.compile does nothing",
    "TORCH_COMPILE_DISABLE": "torch.compile does nothing",
    "TORCH_LOGS": "torch writes logs while it runs",
}
"""Variables that change what is measured; `0` and the empty text leave them off."""
SLOW_MALLOC = "debug"


def _threads(view: View) -> Iterator[Finding]:
    budget = view.thread_budget()
    set_ = {name: view.env[name] for name in THREAD_VARIABLES if view.env.get(name)}
    right = fix(
        f"export OMP_NUM_THREADS={budget}",
        "one thread a core that may run at once",
        _restore("OMP_NUM_THREADS", view),
    )
    remedy = f"Set the threads to at most {budget}, or pass --threads."
    numbers = {}
    clean = True
    for name, value in set_.items():
        # OpenMP takes a list for nested regions; the first number is the outermost.
        first = value.split(",")[0].strip()
        if not first.isdigit() or int(first) < 1:
            clean = False
            yield warn("threads", f"{name}={value} is not a number of threads", remedy, [right])
            continue
        numbers[name] = int(first)
    asked = view.torch.get("threads", "")
    if asked.isdigit():
        numbers["torch"] = int(asked)
    figures = {"budget": float(budget), **{name: float(n) for name, n in numbers.items()}}
    many = [f"{name} {number}" for name, number in numbers.items() if number > budget]
    if many:
        clean = False
        said = f"more threads than can run at once ({budget}): {', '.join(many)}"
        yield warn("threads", said, remedy, [right], **figures)
    if len({n for name, n in numbers.items() if name != "torch"}) > 1:
        clean = False
        said = ", ".join(f"{name}={n}" for name, n in numbers.items() if name != "torch")
        yield warn("threads", f"libraries differ: {said}", "Set them alike.", [right], **figures)
    if clean:
        yield ok("threads", _said(view, numbers, budget), **figures)


def _said(view: View, numbers: dict[str, int], budget: int) -> str:
    set_ = [f"{name}={number}" for name, number in numbers.items() if name != "torch"]
    parts = [f"torch uses {count(numbers['torch'], 'thread')}"] if "torch" in numbers else []
    parts += set_ or ["no variable sets them"]
    if not view.torch:
        parts.append("torch is not installed here")
    return f"{'; '.join(parts)}; {count(budget, 'thread')} can run at once"


def _restore(name: str, view: View) -> str:
    value = view.env.get(name)
    return f"export {name}={value}" if value else f"unset {name}"


def _variables(view: View) -> Iterator[Finding]:
    found = {name: why for name, why in SLOWING.items() if view.env.get(name, "") not in ("", "0")}
    if SLOW_MALLOC in view.env.get("PYTHONMALLOC", ""):
        found["PYTHONMALLOC"] = "Python checks every block of memory"
    for name, why in found.items():
        yield warn(
            "variables",
            f"{name} is set: {why}",
            "Unset it while you measure.",
            [fix(f"unset {name}", "switches that off", _restore(name, view))],
        )
    seed = view.env.get("PYTHONHASHSEED", "random")
    if seed not in ("", "random"):
        yield note(
            "variables",
            f"PYTHONHASHSEED={seed}: every process has the same order of hashes, and the interval "
            "does not show what another order would do",
            "Leave it unset, unless a result must be repeated exactly.",
            [fix("unset PYTHONHASHSEED", "lets hashes vary", f"export PYTHONHASHSEED={seed}")],
        )
    elif not found:
        yield ok("variables", "none is set that slows Python or torch down")


def _allocator(view: View) -> Iterator[Finding]:
    preloaded = view.env.get("LD_PRELOAD", "").replace(":", " ").split()
    # Without a slash the loader looks along its own paths, which we do not know.
    missing = [path for path in preloaded if "/" in path and not view.has(path)]
    for path in missing:
        yield warn(
            "allocator",
            f"LD_PRELOAD names {os.path.basename(path)}, which is not there",
            "Correct or unset it: the loader goes on without.",
            [fix("unset LD_PRELOAD", "loads nothing first", _restore("LD_PRELOAD", view))],
        )
    if view.malloc in ("", "system"):
        yield note(
            "allocator",
            "the system's: it gives large blocks back, and taking them again costs page faults",
            "Measuring keeps them (--allocator keep, the default with glibc); a program of yours "
            "does not.",
        )
    else:
        yield note(
            "allocator",
            f"{view.malloc} is loaded: figures hold for it",
            "Compare only with figures that were made with it.",
        )


THREADS = FunctionCheckup("threads", "ours: threads budget = min(affinity, quota)", _threads)
VARIABLES = FunctionCheckup("variables", "ours: what slows by request", _variables)
ALLOCATOR = FunctionCheckup(
    "allocator", "the dashboard's runner, measured: glibc giving memory back", _allocator
)
