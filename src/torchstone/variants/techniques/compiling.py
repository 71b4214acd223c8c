"""Compilers: torch.compile in its modes, its repeated blocks alone, and torch.jit.trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchstone.records import ArmSpec
from torchstone.variants.techniques.base import (
    CHANGED_WEIGHTS,
    COMPILE,
    MODEL,
    SECOND_SHAPE,
    TOLERANCE,
    Code,
    Technique,
    on_model,
)


def compile_model(model: Any, **options: Any) -> Any:
    """torch.compile; the first call compiles."""
    import torch

    return torch.compile(model, **options)


def compile_frozen(model: Any) -> Any:
    """torch.compile with the weights as constants: later changes of them are not seen."""
    import torch
    import torch._inductor.config

    torch._inductor.config.freezing = True
    return torch.compile(model)


def compile_cpp_wrapper(model: Any) -> Any:
    """torch.compile with a wrapper in C++ around the kernels, instead of one in Python."""
    import torch
    import torch._inductor.config

    torch._inductor.config.cpp_wrapper = True
    return torch.compile(model)


def compile_blocks(model: Any) -> Any:
    """Compile each of the model's repeated blocks by itself: one short compilation serves all."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no blocks")
    containers = (torch.nn.ModuleList, torch.nn.Sequential)
    found: list[Any] = []
    for container in model.modules():
        if not isinstance(container, containers) or any(
            container in one.modules() for one in found
        ):
            continue
        children = [child for child in container if any(True for _ in child.children())]
        kinds = [type(child) for child in children]
        found += [child for child in children if kinds.count(type(child)) > 1]
    if not found:
        raise NotImplementedError("the model has no repeated blocks")
    for block in found:
        block.compile()
    return model


def jit_trace(model: Any) -> Any:
    """torch.jit.trace of the first call (legacy)."""
    import torch

    made: list[Any] = []
    trace: Any = torch.jit.trace

    def call(*args: Any, **kwargs: Any) -> Any:
        if not made:
            example = {"example_inputs": args or None, "example_kwarg_inputs": kwargs or None}
            made.append(trace(model, **example))
        return made[0](*args, **kwargs)

    return call


def _variant(text: str, **env: str) -> Callable[[ArmSpec], ArmSpec]:
    """The arm under another variant; its techniques stay."""

    def set_arm(arm: ArmSpec) -> ArmSpec:
        from torchstone.variants.compiled import MODIFIERS

        kept = [name for name in arm.modifiers if name not in MODIFIERS]
        variables = tuple(sorted({**dict(arm.env), **env}.items()))
        return replace(arm, variant="+".join((text, *kept)), env=variables)

    return set_arm


def _needs_cuda(arm: ArmSpec) -> str:
    return "" if arm.device.startswith("cuda") else "CUDA graphs need a CUDA device"


_COMMON: dict[str, Any] = {
    "tier": TOLERANCE,
    "group": "compiler",
    "inputs": (SECOND_SHAPE,),
    "changes": frozenset({"memory_format"}),
    "lines": (
        *("interpreter", "dispatch", "autograd", "kernels", "allocator"),
        *("optimizer", "pool", "copies", "collector"),
    ),
    "may_break": "dropout's random numbers; a new shape compiles again",
}


def _compiled(name: str, summary: str, variant: str, arguments: str = "", **more: Any) -> Technique:
    usual = {"code": (Code(COMPILE, compile_model, arguments),), "set_arm": _variant(variant)}
    return Technique(name, summary, **{**_COMMON, **usual, **more})


COMPILED = _compiled("compile", "torch.compile", "inductor")
DYNAMIC = _compiled(
    "compile_dynamic", "torch.compile for any shape", "inductor+dynamic", "dynamic=True"
)
MAX_AUTOTUNE = _compiled(
    "compile_max_autotune",
    "torch.compile, kernels chosen by timing them",
    "inductor+max-autotune",
    'mode="max-autotune"',
)
REDUCE_OVERHEAD = _compiled(
    "compile_cudagraphs",
    "torch.compile with CUDA graphs",
    "inductor+cudagraphs",
    'mode="reduce-overhead"',
    unsupported=_needs_cuda,
)
FREEZING = _compiled(
    "compile_freezing",
    "torch.compile with the weights as constants",
    "inductor+freezing",
    modes=("inference",),
    conditions=(CHANGED_WEIGHTS,),
    may_break="weights that change later are not seen",
    code=(Code(COMPILE, compile_frozen),),
)
CPP_WRAPPER = _compiled(
    "compile_cpp_wrapper",
    "torch.compile with a C++ wrapper",
    "inductor",
    set_arm=_variant("inductor", TORCHINDUCTOR_CPP_WRAPPER="1"),
    code=(Code(COMPILE, compile_cpp_wrapper),),
)
BLOCKS = Technique(
    "compile_blocks",
    "torch.compile of each repeated block (regional compilation)",
    on_model(compile_blocks),
    code=(Code(MODEL, compile_blocks),),
    since="2.5",
    **_COMMON,
)
JIT_TRACE = Technique(
    "jit_trace",
    "torch.jit.trace (legacy; deprecated in torch 2.x)",
    set_arm=_variant("jit-trace"),
    code=(Code(COMPILE, jit_trace),),
    modes=("inference",),
    **{
        **_COMMON,
        "changes": frozenset({"memory_format", "container"}),
        "may_break": "control flow that depends on values; containers other than tuples",
    },
)
