"""Objects of the running process as workloads, and what measuring them here must put back."""

from __future__ import annotations

import copy
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torchstone.records import ArmSpec, UsageError
from torchstone.workloads import Workload


@contextmanager
def kept_state(workloads: Sequence[Workload]) -> Iterator[None]:
    """Random generators, gradient mode, threads, and the mode of each module are as before."""
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        numpy = sys.modules.get("numpy")
        if numpy is not None and "numpy.random" in sys.modules:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        torch = sys.modules.get("torch")
        if torch is not None:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            for module in _modules(torch, workloads):
                stack.callback(setattr, module, "training", module.training)
        yield


def _modules(torch: Any, workloads: Sequence[Workload]) -> Iterator[Any]:
    for workload in workloads:
        call = workload.call
        owner = call if isinstance(call, torch.nn.Module) else getattr(call, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            yield from owner.modules()


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Without what native code writes to standard error: torch's profiler tells of each start."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def own_workload(workload: Workload, arm: ArmSpec) -> Workload:
    """The object itself where running it changes nothing of it, else a copy.

    Training moves weights, a precision casts them, and a technique may change the module.
    """
    if arm.mode == "inference" and arm.precision == "fp32" and "+" not in arm.variant:
        return workload
    try:
        return replace(workload, call=copy.deepcopy(workload.call))
    except Exception as error:  # user classes may refuse for any reason
        raise UsageError(
            f"{arm.name} needs a copy of the object, which cannot be copied: {error}.",
            "Write a factory `def make(): ...` in a file, and name it: path.py:make.",
        ) from error
