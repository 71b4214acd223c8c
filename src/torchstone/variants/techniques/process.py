"""Settings of the process: threads, where they run and how they wait, allocator, collector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchstone.machine.hardware import physical_cores
from torchstone.machine.memory import allocator_environment
from torchstone.machine.processes import usable_cores
from torchstone.records import ArmSpec, UsageError
from torchstone.variants.techniques.base import (
    BITWISE,
    MODEL,
    TOLERANCE,
    Code,
    Technique,
    on_model,
)


def set_threads(model: Any, threads: int) -> Any:
    """Threads of one operation."""
    import torch

    torch.set_num_threads(threads)
    return model


def gc_freeze(model: Any) -> Any:
    """What lives now is never looked at by the garbage collector again, and it runs rarely."""
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 100, 100)  # Python's own first one is 700 to 2,000
    return model


def _threads(count: Callable[[], int]) -> dict[str, Any]:
    def unsupported(arm: ArmSpec) -> str:
        return f"the baseline has {count()} threads already" if arm.threads == count() else ""

    return {
        "set_arm": lambda arm: replace(arm, threads=count()),
        "unsupported": unsupported,
        "tier": TOLERANCE,
        "group": "threads",
        "lines": ("kernels", "pool", "contention", "allocator", "off"),
        "may_break": "the order of sums, so the last digits",
        "code": (Code(MODEL, set_threads, "threads={threads}"),),
    }


def _physical() -> int:
    return max(1, min(physical_cores() or usable_cores(), usable_cores()))


def _only_if_not_physical(arm: ArmSpec) -> str:
    if _physical() == usable_cores():
        return "every core is a physical one: it is the same as threads_all"
    return f"the baseline has {_physical()} threads already" if arm.threads == _physical() else ""


def _only_if_several(arm: ArmSpec) -> str:
    if usable_cores() == 1:
        return "there is one core"
    return "the baseline has one thread already" if arm.threads == 1 else ""


THREADS_ALL = Technique("threads_all", "one thread for each core", **_threads(usable_cores))
THREADS_PHYSICAL = Technique(
    "threads_physical",
    "one thread for each physical core",
    **{**_threads(_physical), "unsupported": _only_if_not_physical},
)
THREADS_ONE = Technique(
    "threads_one",
    "one thread",
    **{**_threads(lambda: 1), "unsupported": _only_if_several},
)


def _env(**env: str) -> Callable[[ArmSpec], ArmSpec]:
    return lambda arm: replace(arm, env=tuple(sorted({**dict(arm.env), **env}.items())))


def _set_already(*names: str) -> Callable[[ArmSpec], str]:
    def unsupported(arm: ArmSpec) -> str:
        found = [name for name in names if name in dict(arm.env)]
        if found:
            return f"the baseline sets {found[0]} itself"
        return "there is one thread" if arm.threads == 1 else ""

    return unsupported


_OPENMP: dict[str, Any] = {"tier": BITWISE, "lines": ("pool", "kernels", "contention", "off")}
BOUND = Technique(
    "omp_bound",
    "OpenMP threads bound to cores (OMP_PROC_BIND=close)",
    set_arm=_env(OMP_PROC_BIND="close", OMP_PLACES="cores"),
    unsupported=_set_already("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"),
    may_break="other processes that want the same cores",
    group="affinity",
    **_OPENMP,
)
PASSIVE = Technique(
    "omp_passive",
    "OpenMP threads sleep while they wait (OMP_WAIT_POLICY=passive)",
    set_arm=_env(OMP_WAIT_POLICY="passive"),
    unsupported=_set_already("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"),
    may_break="nothing",
    group="wait policy",
    **_OPENMP,
)
ACTIVE = Technique(
    "omp_active",
    "OpenMP threads spin while they wait (OMP_WAIT_POLICY=active)",
    set_arm=_env(OMP_WAIT_POLICY="active"),
    unsupported=_set_already("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"),
    may_break="other processes: waiting threads keep their cores busy",
    group="wait policy",
    **_OPENMP,
)


def _allocator(name: str, summary: str) -> Technique:
    def unsupported(arm: ArmSpec) -> str:
        if arm.allocator == name:
            return f"the baseline's allocator is {name} already"
        try:
            allocator_environment(name)
        except UsageError as error:
            return error.message.rstrip(".")
        return ""

    return Technique(
        f"allocator_{name}",
        summary,
        set_arm=lambda arm: replace(arm, allocator=name),
        unsupported=unsupported,
        needs_torch=False,
        tier=BITWISE,
        group="allocator",
        lines=("allocator", "kernels"),
        may_break="the memory that the process holds may grow",
    )


KEEP = _allocator("keep", "the C library's allocator, told never to give memory back")
JEMALLOC = _allocator("jemalloc", "jemalloc, preloaded")
TCMALLOC = _allocator("tcmalloc", "tcmalloc, preloaded")

GC_FREEZE = Technique(
    "gc_freeze",
    "the garbage collector frozen after building, and run rarely",
    on_model(gc_freeze),
    needs_torch=False,
    tier=BITWISE,
    lines=("collector", "interpreter"),
    may_break="programs that make much cyclic garbage hold more of it",
    code=(Code(MODEL, gc_freeze),),
)
