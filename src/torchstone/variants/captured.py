"""Ahead-of-time captures: `torch.jit.trace`, `torch.export`, AOTInductor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.records import ArmSpec, UsageError
from torchstone.variants.base import Applied, NotSupported
from torchstone.workloads import Inputs


@dataclass(frozen=True)
class Captured:
    """A graph recorded from one example call and run in place of the module."""

    name: str
    capture: Callable[[Any, Inputs], Callable[..., Any]]
    one_shape: bool = False
    """It holds for the example's shapes alone."""
    changes: frozenset[str] = frozenset({"memory_format", "container"})
    modules: tuple[str, ...] = ()
    summary: str = ""

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Captured:
        """Captures have none."""
        if modifiers:
            raise UsageError(f"{self.name} has no modifier {modifiers[0]!r}.")
        return self

    def unsupported(self, arm: ArmSpec) -> str | None:
        """A captured inference graph cannot be trained, nor one of fixed shapes be given others."""
        if arm.mode == "training":
            return f"{self.name} captures inference only"
        if self.one_shape and arm.shapes > 1:
            return f"{self.name} captures one input shape, and {arm.shapes} are measured"
        return None

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """Capture now: unlike torch.compile, the cost lies in the build."""
        return Applied(self.capture(call, example))


def _trace(call: Any, example: Inputs) -> Callable[..., Any]:
    import torch

    trace: Any = torch.jit.trace
    traced: Callable[..., Any] = trace(
        call, example_inputs=example.args or None, example_kwarg_inputs=dict(example.kwargs) or None
    )
    return traced


def _exported(call: Any, example: Inputs) -> Any:
    import torch

    if not isinstance(call, torch.nn.Module):
        raise NotSupported("torch.export takes a module, and this target is a plain function")
    return torch.export.export(call, example.args, dict(example.kwargs))


def _export(call: Any, example: Inputs) -> Callable[..., Any]:
    module: Callable[..., Any] = _exported(call, example).module()
    return module


def _aot_inductor(call: Any, example: Inputs) -> Callable[..., Any]:
    import torch

    # The conductor's scratch folder goes when the case is over; alone, we leave the file in TMPDIR.
    folder = tempfile.mkdtemp(prefix="aoti-", dir=os.environ.get("TORCHSTONE_SCRATCH"))
    package = torch._inductor.aoti_compile_and_package(
        _exported(call, example), package_path=os.path.join(folder, "model.pt2")
    )
    loaded: Callable[..., Any] = torch._inductor.aoti_load_package(package)
    return loaded


JIT_TRACE = Captured("jit-trace", _trace, summary="torch.jit.trace of one call; inference")
EXPORT = Captured(
    "export", _export, one_shape=True, summary="torch.export, run as a module; inference, one shape"
)
AOTI = Captured(
    "aoti",
    _aot_inductor,
    one_shape=True,
    modules=("torch._inductor.compile_fx",),
    summary="AOTInductor: exported and compiled ahead of time; inference, one shape",
)
