"""Ops that need no formula to be understood: a few operations for each byte that they touch.

Pointwise ops, reductions, normalisations, pooling, losses, optimizers and the moving of data. Most
carry a tag of torch's; the others are named here. What is in neither list may do any amount of
work (a solver, a transform, somebody's own kernel).
"""

from __future__ import annotations

from typing import Any

_TAGS = ("pointwise", "reduction", "view_copy")
_BEGINNINGS = (
    "_adaptive_",
    "_batch_norm_",
    "_embedding_bag",
    "_foreach_",
    "_fused_ada",
    "_fused_dropout",
    "_fused_rms_norm",
    "_fused_sgd",
    "_log_softmax",
    "_native_batch_norm_",
    "_nested_",
    "_safe_softmax",
    "_softmax",
    "_to_copy",
    "_unsafe_index",
    "_upsample_",
    "adaptive_",
    "avg_pool",
    "binary_cross_entropy",
    "embedding",
    "grid_sampler",
    "huber_loss",
    "index",
    "l1_loss",
    "log_sigmoid",
    "masked_",
    "max_pool",
    "mse_loss",
    "native_",
    "new_",
    "nll_loss",
    "pixel_",
    "reflection_pad",
    "replication_pad",
    "scatter",
    "smooth_l1_loss",
    "to_padded_tensor",
    "upsample_",
)
_NAMES = frozenset(
    (
        *("_reshape_alias", "_unsafe_view", "alias", "detach", "lift_fresh", "copy_"),
        *("unsafe_split", "unsafe_split_with_sizes", "split"),
        *("arange", "empty", "empty_like", "empty_strided", "eye", "fill_", "full"),
        *("full_like", "linspace", "one_hot", "ones", "ones_like", "scalar_tensor"),
        *("tril_indices", "triu_indices", "zero_", "zeros", "zeros_like"),
        *("bernoulli_", "exponential_", "multinomial", "normal_", "rand", "randint", "randn"),
        *("randperm", "random_", "uniform_"),
        *("cat", "col2im", "constant_pad_nd", "diag_embed", "flip", "gather", "im2col"),
        *("repeat", "repeat_interleave", "roll", "select_backward", "slice_backward", "stack"),
        *("take", "tril", "triu", "unfold_backward"),
        *("argsort", "bincount", "bucketize", "cumprod", "cumsum", "kthvalue", "logcumsumexp"),
        *("median", "mode", "nonzero", "searchsorted", "sort", "topk", "unique_consecutive"),
        *("_unique2", "unique_dim"),
        *("_local_scalar_dense", "equal", "glu", "glu_backward", "rrelu_with_noise"),
    )
)


def is_plain(func: Any) -> bool:
    """Whether the op (an overload, as it is dispatched) is known to be of this kind."""
    if getattr(func, "namespace", "") != "aten":
        return False
    name = str(func).split(".")[1]
    if getattr(func, "is_view", False) or name in _NAMES or name.startswith(_BEGINNINGS):
        return True
    return any(getattr(tag, "name", "") in _TAGS for tag in func.tags)
