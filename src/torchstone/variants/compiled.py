"""`torch.compile` with any registered backend, and its switches as modifiers."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torchstone.records import ArmSpec, NotSupported, UsageError, first_line
from torchstone.records.plugins import did_you_mean
from torchstone.variants.base import Applied
from torchstone.variants.techniques import TECHNIQUES
from torchstone.workloads import Inputs

# Ahead-of-time captures: `torch.jit.trace`, `torch.export`, AOTInductor.


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


# Why a torch.compile backend did not run, where its failure says that it cannot run here.
#
# A backend meets a missing package only when it compiles, and Dynamo wraps what it raised.

_FAILED, _UNKNOWN = "BackendCompilerFailed", "InvalidBackend"
_MISSING_ARGUMENT = re.compile(r"\w+\(\) missing \d+ required [\w-]+ arguments?: (.+)")


def unsupported_backend(error: BaseException) -> str | None:
    """The reason in words; None for a backend that broke, and for errors of the model's own."""
    chain = list(_chain(error))
    if any(type(one).__name__ == _UNKNOWN for one in chain):
        return first_line(error) or type(error).__name__
    failed = next((one for one in chain if type(one).__name__ == _FAILED), None)
    if failed is None:
        return None
    name = str(getattr(failed, "backend_name", "?"))
    inner = getattr(failed, "inner_exception", None)
    if isinstance(inner, TypeError):
        missing = _MISSING_ARGUMENT.match(str(inner))
        if missing and str(inner).startswith(f"{name}()"):
            return f"the backend {name} needs an argument that a name cannot give: {missing[1]}"
    return missing_package(name, chain)


def missing_package(backend: str, chain: list[BaseException]) -> str | None:
    """What the backend could not import. A library that is there but does not load is a fault."""
    imports = [one for one in chain if isinstance(one, ImportError) and one.path is None]
    for one in imports:
        if isinstance(one, ModuleNotFoundError) and one.name:
            package = one.name.split(".")[0]
            needs = f"the backend {backend} needs the package {package}"
            return None if package == "torch" else needs
    lines = [line for one in imports for line in str(one).splitlines()[:1]]
    return f"the backend {backend} cannot be imported: {lines[0]}" if lines else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that led to it, each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [getattr(one, "inner_exception", None), one.__cause__, one.__context__]


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
                techniques = [name for name in TECHNIQUES if TECHNIQUES[name].modifier]
                names = [f"+{name}" for name in (*MODIFIERS, *techniques)]
                raise UsageError(
                    f"{self.backend} has no modifier {modifier!r}.",
                    f"{did_you_mean(f'+{modifier}', names)}Modifiers: {', '.join(names)}.",
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
