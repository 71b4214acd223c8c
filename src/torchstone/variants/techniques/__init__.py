"""Techniques: small changes of a workload or of its process, which the tuner tries one by one.

Holds: one file for each kind of change, and their registry. Those that change the workload are
modifiers of any variant (`eager+channels_last`, `inductor+fused_optimizer`): an arm like any other,
checked, stored and reproduced like any other. Touches: `records`, `machine`, `workloads`, and torch
inside functions only. Other packages add theirs by entry point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata

from torchstone.records.plugins import Registry
from torchstone.variants.techniques.base import DEFAULT_LEARNING_RATE, Code, Technique

__all__ = ["DEFAULT_LEARNING_RATE", "TECHNIQUES", "Code", "Technique"]

_BUILT_IN = {
    "autograd": {
        "checkpoint": "CHECKPOINT",
        "checkpoint_selective": "SELECTIVE",
        "no_grad": "NO_GRAD",
        "inference_mode": "INFERENCE_MODE",
        "eval_mode": "EVAL_MODE",
    },
    "layout": {"channels_last": "CHANNELS_LAST", "fold_batchnorm": "FOLD_BATCHNORM"},
    "precision": {
        "float32": "FLOAT32",
        "autocast_bf16": "AUTOCAST_BF16",
        "autocast_fp16": "AUTOCAST_FP16",
        "bf16": "BF16",
        "bf16_matmul": "BF16_MATMUL",
        "tf32": "TF32",
        "int8_dynamic": "INT8_DYNAMIC",
        "torchao_int8_dynamic": "TORCHAO_DYNAMIC",
        "torchao_int8_weights": "TORCHAO_WEIGHTS",
        "prune_unstructured": "UNSTRUCTURED",
        "prune_structured": "STRUCTURED",
    },
    "optimizers": {
        "fused_optimizer": "FUSED",
        "foreach_optimizer": "FOREACH",
        "accumulate_gradients_4": "ACCUMULATE",
        "optimizer_adamw": "ADAMW",
        "optimizer_momentum": "MOMENTUM",
        "one_cycle_lr": "ONE_CYCLE",
    },
    "process": {
        "threads_all": "THREADS_ALL",
        "threads_physical": "THREADS_PHYSICAL",
        "threads_one": "THREADS_ONE",
        "omp_bound": "BOUND",
        "omp_passive": "PASSIVE",
        "omp_active": "ACTIVE",
        "allocator_keep": "KEEP",
        "allocator_jemalloc": "JEMALLOC",
        "allocator_tcmalloc": "TCMALLOC",
        "gc_freeze": "GC_FREEZE",
    },
    "batching": {
        "micro_batches_4": "FOUR",
        "micro_batches_16": "SIXTEEN",
        "larger_batch_2": "TWICE",
        "larger_batch_8": "EIGHTFOLD",
        "loader_worker": "LOADER_ONE",
        "loader_workers": "LOADER_SEVERAL",
        "loader_pinned": "LOADER_PINNED",
        "non_blocking": "NON_BLOCKING",
    },
    "parallel": {
        "data_parallel": "DATA_PARALLEL",
        "sharded_data_parallel": "SHARDED",
        "tensor_parallel": "TENSOR_PARALLEL",
    },
    "compiling": {
        "compile": "COMPILED",
        "compile_dynamic": "DYNAMIC",
        "compile_max_autotune": "MAX_AUTOTUNE",
        "compile_cudagraphs": "REDUCE_OVERHEAD",
        "compile_freezing": "FREEZING",
        "compile_cpp_wrapper": "CPP_WRAPPER",
        "compile_blocks": "BLOCKS",
        "jit_trace": "JIT_TRACE",
    },
}
"""By module of this package: a technique's name, and its object's."""

REGISTRY = Registry(
    "torchstone.techniques",
    {
        name: f"{__name__}.{module}:{value}"
        for module, names in _BUILT_IN.items()
        for name, value in names.items()
    },
)


@cache
def _points() -> dict[str, metadata.EntryPoint]:
    return REGISTRY.by_name()


@cache
def _load(name: str) -> Technique:
    found: Technique = _points()[name].load()
    return found


class _Techniques(Mapping[str, Technique]):
    """Every technique that is installed, by name; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Technique:
        if name not in _points():
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_points())

    def __len__(self) -> int:
        return len(_points())

    def __contains__(self, name: object) -> bool:
        return name in _points()

    def source(self, name: str) -> str:
        """The package that brings it."""
        point = _points()[name]
        return point.dist.name if point.dist else "torchstone"


TECHNIQUES = _Techniques()
