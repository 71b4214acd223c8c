"""`torch.compile` with any registered backend, and its switches as modifiers."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torchstone.records import ArmSpec, UsageError
from torchstone.variants.backends import missing_package
from torchstone.variants.base import Applied, NotSupported
from torchstone.workloads import Inputs

MODIFIERS = ("dynamic", "fullgraph", "cudagraphs", "max-autotune", "freezing")
_INDUCTOR_MODES = {"cudagraphs": "reduce-overhead", "max-autotune": "max-autotune"}


@dataclass(frozen=True)
class Compiled:
    """`torch.compile(call, backend=..., ...)`."""

    backend: str
    modifiers: tuple[str, ...] = ()
    changes: frozenset[str] = frozenset({"memory_format"})
    summary: str = "torch.compile with this backend"

    @property
    def name(self) -> str:
        """Backend and modifiers, as written."""
        return "+".join((self.backend, *self.modifiers))

    @property
    def modules(self) -> tuple[str, ...]:
        """The compiler's own: libraries like torch, which count neither as compiling nor as the
        model's memory."""
        inductor = ("torch._inductor.compile_fx",) if self.backend == "inductor" else ()
        return ("torch._dynamo", *inductor)

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Compiled:
        """The same backend with switches set."""
        for modifier in modifiers:
            if modifier not in MODIFIERS:
                near = difflib.get_close_matches(modifier, MODIFIERS, n=1)
                hint = f"Did you mean +{near[0]}? " if near else ""
                raise UsageError(
                    f"{self.backend} has no modifier {modifier!r}.",
                    f"{hint}Modifiers: {', '.join('+' + m for m in MODIFIERS)}.",
                )
        return replace(self, modifiers=tuple(dict.fromkeys(modifiers)))

    def unsupported(self, arm: ArmSpec) -> str | None:
        """CUDA graphs need CUDA, freezing needs inference, and inductor's modes need inductor."""
        cuda = arm.device.startswith("cuda")
        if not cuda and (self.backend == "cudagraphs" or "cudagraphs" in self.modifiers):
            return "CUDA graphs need a CUDA device"
        if "freezing" in self.modifiers and arm.mode == "training":
            return "freezing makes weights constant, so it is for inference only"
        only_inductor = [m for m in self.modifiers if m in (*_INDUCTOR_MODES, "freezing")]
        if only_inductor and self.backend != "inductor":
            return f"+{only_inductor[0]} is a switch of inductor, not of {self.backend}"
        return None

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """Compile; the work happens at the first call."""
        import torch

        options: dict[str, Any] = {"backend": self.backend}
        if "dynamic" in self.modifiers:
            options["dynamic"] = True
        if "fullgraph" in self.modifiers:
            options["fullgraph"] = True
        for modifier, mode in _INDUCTOR_MODES.items():
            if modifier in self.modifiers:
                options["mode"] = mode
        if "freezing" in self.modifiers:
            import torch._inductor.config

            torch._inductor.config.freezing = True
        try:
            compiled = torch.compile(call, **options)
        except ImportError as error:  # a plug-in's backend is imported by now
            reason = missing_package(self.backend, [error])
            if reason is None:
                raise
            raise NotSupported(reason) from error
        return Applied(compiled, _forget)


def _forget() -> None:
    import torch._dynamo

    torch._dynamo.reset()


INDUCTOR = Compiled(
    "inductor", summary=f"torch.compile; with {', '.join('+' + name for name in MODIFIERS)}"
)
AOT_EAGER = Compiled(
    "aot_eager", summary="torch.compile's capture and AOTAutograd, with eager kernels"
)
CUDAGRAPHS = Compiled("cudagraphs", summary="eager kernels replayed as a CUDA graph; needs CUDA")
