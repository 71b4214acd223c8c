"""Models over several ranks: data parallel, sharded, tensor parallel.

For targets that start a process group themselves, with WORLD_SIZE in their environment. Answers are
those of one rank; each rank has the same weights, and its own batch.
"""

from __future__ import annotations

import os
from typing import Any

from torchstone.records import ArmSpec
from torchstone.variants.techniques.base import MODEL, TOLERANCE, Code, Technique, on_model


def data_parallel(model: Any, sharded: bool = False) -> Any:
    """Gradients averaged over all ranks (DDP); sharded: weights divided among them, too (FSDP)."""
    import torch
    import torch.distributed as dist
    from torch.distributed._composable.replicate import replicate
    from torch.distributed.fsdp import fully_shard

    if not (dist.is_available() and dist.is_initialized()):
        raise NotImplementedError("the target starts no process group")
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no weights to share")
    made: Any = fully_shard(model) if sharded else replicate(model)
    return made


def tensor_parallel(model: Any) -> Any:
    """Pairs of linear layers of a Sequential divided among the ranks: columns, then rows."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    if not (dist.is_available() and dist.is_initialized()):
        raise NotImplementedError("the target starts no process group")
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no weights to divide")
    device = next((one.device.type for one in model.parameters()), "cpu")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    divided = 0
    for block in list(model.modules()):
        if not isinstance(block, torch.nn.Sequential):
            continue
        children = dict(block.named_children())
        names = list(children)
        linear = [name for name, one in children.items() if isinstance(one, torch.nn.Linear)]
        for first, second in zip(linear[::2], linear[1::2], strict=False):
            inside = names[names.index(first) + 1 : names.index(second)]
            between = [children[name] for name in inside]
            if any(True for one in between for _ in one.parameters()):
                continue  # it may depend on all units
            plan = {first: ColwiseParallel(), second: RowwiseParallel()}
            parallelize_module(block, mesh, plan)
            divided += 1
    if not divided:
        raise NotImplementedError("no two linear layers follow one another in a Sequential")
    return model


def _one_rank(arm: ArmSpec) -> str:
    asked = {**os.environ, **dict(arm.env)}
    return "" if asked.get("WORLD_SIZE") else "the target asks for one rank: no WORLD_SIZE is set"


_COMMON: dict[str, Any] = {
    "changes": frozenset({"parameters"}),
    "tier": TOLERANCE,
    "group": "parallel",
    "unsupported": _one_rank,
    "may_break": "the size of the whole batch; sampling of data; state_dict keys and types",
}
DATA_PARALLEL = Technique(
    "data_parallel",
    "gradients averaged over the ranks (DistributedDataParallel)",
    on_model(data_parallel),
    modes=("training",),
    code=(Code(MODEL, data_parallel),),
    **_COMMON,
)
SHARDED = Technique(
    "sharded_data_parallel",
    "weights divided among the ranks (FSDP)",
    on_model(lambda model: data_parallel(model, sharded=True)),
    since="2.6",
    code=(Code(MODEL, data_parallel, "sharded=True"),),
    **_COMMON,
)
TENSOR_PARALLEL = Technique(
    "tensor_parallel",
    "pairs of linear layers divided among the ranks (tensor parallel)",
    on_model(tensor_parallel),
    since="2.5",
    code=(Code(MODEL, tensor_parallel),),
    **_COMMON,
)
