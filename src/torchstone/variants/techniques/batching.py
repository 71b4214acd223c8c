"""Batches: taken in parts, or larger for more throughput; loaded ahead, copied without a wait."""

from __future__ import annotations

from functools import partial
from typing import Any

from torchstone.machine.processes import usable_cores
from torchstone.records import ArmSpec, NotSupported
from torchstone.variants.techniques.base import MODEL, PREPARE, TOLERANCE, Code, Technique, on_model
from torchstone.workloads import Workload


def micro_batches(model: Any, parts: int) -> Any:
    """The batch in parts, one after the other; the outputs are put together again."""
    import torch

    whole = model.forward if isinstance(model, torch.nn.Module) else model

    def joined(outputs: list[Any]) -> Any:
        first = outputs[0]
        if isinstance(first, torch.Tensor):
            return torch.cat(outputs)
        if isinstance(first, (tuple, list)) and not hasattr(first, "_fields"):
            return type(first)(joined(list(one)) for one in zip(*outputs, strict=True))
        raise TypeError(f"outputs of type {type(first).__name__} cannot be put together")

    def call(*args: Any) -> Any:
        batch = len(args[0])
        if any(not isinstance(one, torch.Tensor) or len(one) != batch for one in args):
            raise TypeError("not all inputs are tensors of one batch")
        split = [one.chunk(parts) for one in args]
        return joined([whole(*some) for some in zip(*split, strict=True)])

    if isinstance(model, torch.nn.Module):
        model.forward = call
        return model
    return call


def larger_batch(model: Any, times: int) -> Any:
    """As if the batch were so many times as large: it is repeated, and the first part of the
    outputs is the answer."""
    import torch

    whole = model.forward if isinstance(model, torch.nn.Module) else model

    def first(output: Any, batch: int) -> Any:
        if isinstance(output, torch.Tensor):
            return output[:batch]
        if isinstance(output, (tuple, list)) and not hasattr(output, "_fields"):
            return type(output)(first(one, batch) for one in output)
        raise TypeError(f"outputs of type {type(output).__name__} cannot be divided")

    def call(*args: Any) -> Any:
        batch = len(args[0])
        if any(not isinstance(one, torch.Tensor) or len(one) != batch for one in args):
            raise TypeError("not all inputs are tensors of one batch")
        return first(whole(*(torch.cat([one] * times) for one in args)), batch)

    if isinstance(model, torch.nn.Module):
        model.forward = call
        return model
    return call


_COMMON: dict[str, Any] = {
    "tier": TOLERANCE,
    "modes": ("inference",),
    "group": "batching",
    "lines": ("kernels", "allocator", "pool"),
    "may_break": "models whose answer for one row depends on the others; keyword inputs",
}
FOUR = Technique(
    "micro_batches_4",
    "the batch in 4 parts, one after the other",
    on_model(lambda model: micro_batches(model, 4)),
    code=(Code(MODEL, micro_batches, "parts=4"),),
    **_COMMON,
)
SIXTEEN = Technique(
    "micro_batches_16",
    "the batch in 16 parts, one after the other",
    on_model(lambda model: micro_batches(model, 16)),
    code=(Code(MODEL, micro_batches, "parts=16"),),
    **_COMMON,
)


def _larger(times: int) -> Technique:
    return Technique(
        f"larger_batch_{times}",
        f"batches {times} times as large",
        on_model(lambda model: larger_batch(model, times)),
        **{
            **_COMMON,
            "work": times,
            "goals": ("throughput",),
            "may_break": "latency, memory; models whose answer for one row depends on the others",
        },
    )


TWICE, EIGHTFOLD = _larger(2), _larger(8)


def loader_workers(workers: int, prefetch: int = 4, pin: bool = False) -> None:
    """Every DataLoader made from now on loads in processes of its own, which stay, and ahead."""
    import functools

    from torch.utils.data import DataLoader

    make: Any = DataLoader.__init__

    @functools.wraps(make)
    def made(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) <= 4 and not kwargs.get("num_workers"):
            kwargs.update(num_workers=workers, persistent_workers=True)
            kwargs.setdefault("prefetch_factor", prefetch)
            kwargs.setdefault("pin_memory", pin)
        make(self, dataset, *args, **kwargs)

    DataLoader.__init__ = made  # type: ignore[method-assign]


def non_blocking() -> None:
    """Copies from the host to a CUDA device are not waited for."""
    import functools

    import torch

    copy: Any = torch.Tensor.to
    parse: Any = torch._C._nn._parse_to

    @functools.wraps(copy)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.is_cuda and "copy" not in kwargs:
            device, dtype, _, layout = parse(*args, **kwargs)
            if device is not None and device.type == "cuda":
                more = {} if layout is None else {"memory_format": layout}
                return copy(self, device, dtype or self.dtype, True, **more)
        return copy(self, *args, **kwargs)

    torch.Tensor.to = to  # type: ignore[method-assign]


def _no_pinning(arm: ArmSpec) -> str:
    return "" if arm.device.startswith("cuda") else "pinned memory is for copies to a CUDA device"


def _no_copies(arm: ArmSpec) -> str:
    return "" if arm.device.startswith("cuda") else "there are no copies to a CUDA device"


def _only_with_loader(workload: Workload) -> Workload:
    """Refuse a target that made no DataLoader: nothing would change."""
    import gc

    from torch.utils.data import DataLoader

    if not any(isinstance(one, DataLoader) for one in gc.get_objects()):
        raise NotSupported("the target makes no DataLoader when it is built")
    return workload


_LOADING: dict[str, Any] = {
    "apply": _only_with_loader,
    "tier": TOLERANCE,
    "group": "data loader",
    "lines": ("loading", "files", "interpreter", "dispatch", "kernels", "locks"),
    "may_break": "random numbers drawn by the data set; data sets that cannot be sent to a process",
}


def _several() -> int:
    return max(2, usable_cores())


LOADER_ONE = Technique(
    "loader_worker",
    "data loaders load ahead in a process of their own",
    before=partial(loader_workers, 1),
    code=(Code(PREPARE, loader_workers, "1"),),
    **_LOADING,
)
LOADER_SEVERAL = Technique(
    "loader_workers",
    "data loaders load ahead in as many processes as there are cores",
    before=lambda: loader_workers(_several()),
    code=(Code(PREPARE, loader_workers, "workers={cores}"),),
    **_LOADING,
)
LOADER_PINNED = Technique(
    "loader_pinned",
    "the same into pinned memory",
    before=lambda: loader_workers(_several(), pin=True),
    unsupported=_no_pinning,
    code=(Code(PREPARE, loader_workers, "workers={cores}, pin=True"),),
    **_LOADING,
)
NON_BLOCKING = Technique(
    "non_blocking",
    "copies to a CUDA device that are not waited for",
    before=non_blocking,
    unsupported=_no_copies,
    lines=("copies",),
    may_break="a tensor that is written again before its copy has ended",
    code=(Code(PREPARE, non_blocking),),
)
