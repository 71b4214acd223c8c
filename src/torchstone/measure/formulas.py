"""Formulas for ops that torch itself counts as nothing: from an op's arguments to its operations.

A multiplication and an addition are two operations. What is counted is the multiplying and adding
of matrix products; biases, activations, softmax and scaling are left out, as torch leaves them out
of its own formulas. Each function takes an op's arguments in the order of its schema.
"""

from __future__ import annotations

from math import prod
from typing import Any


def mv(matrix: Any, vector: Any, *_: Any, **__: Any) -> int:
    """Matrix times vector."""
    return 2 * int(matrix.numel())


def addmv(bias: Any, matrix: Any, vector: Any, *_: Any, **__: Any) -> int:
    """Matrix times vector, plus a vector."""
    return mv(matrix, vector)


def dot(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """The inner product of two vectors; `vdot` too."""
    return 2 * int(left.numel())


def addr(bias: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    """An outer product added to a matrix: a matrix product with an inner size of one."""
    return 2 * int(left.numel()) * int(right.numel())


def addbmm(bias: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    """A batch of matrix products, summed."""
    batch, rows, inner = left.shape
    return 2 * int(batch * rows * inner * right.shape[-1])


def addmm(bias: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    """`_addmm_activation`: a linear layer with its activation in one op."""
    return 2 * int(left.shape[0] * left.shape[1] * right.shape[-1])


def grouped_mm(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """Matrix products by group, as of experts. Each row, or each column, belongs to one group."""
    rows, inner = left.shape[-2:]
    both = left.dim() == 3 and right.dim() == 3
    return 2 * int(rows * inner * right.shape[-1] * (left.shape[0] if both else 1))


def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Scaled-dot-product attention: scores, and scores times values.

    Causal or masked attention counts in full, as torch counts flash attention, although an
    implementation may skip up to half of it.
    """
    return _products(query, key, value, scores=1, values=1)


def attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Scores once more, then the gradients of scores, values, queries and keys."""
    return _products(query, key, value, scores=3, values=2)


def _products(query: Any, key: Any, value: Any, scores: int, values: int) -> int:
    """So many products of the size of query times key, and of scores times value."""
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    return 2 * int(pairs * (scores * query.shape[-1] + values * value.shape[-1]))


def mkldnn_rnn_layer(x: Any, weight_ih: Any, weight_hh: Any, *_: Any, **__: Any) -> int:
    """One layer and direction of an LSTM: every weight once for each step of each sequence."""
    return _recurrent(x, (weight_ih, weight_hh))


def mkldnn_rnn_layer_backward(x: Any, weight_ih: Any, weight_hh: Any, *_: Any, **__: Any) -> int:
    """The gradients of inputs and states, and those of the weights: each as much as forward."""
    return 2 * _recurrent(x, (weight_ih, weight_hh))


def cudnn_rnn(x: Any, weights: Any, *_: Any, **__: Any) -> int:
    """All layers and directions at once: weights of two dimensions multiply, biases do not."""
    return _recurrent(x, weights)


def cudnn_rnn_backward(x: Any, weights: Any, *_: Any, **__: Any) -> int:
    """As much again for the inputs, and for the weights."""
    return 2 * _recurrent(x, weights)


def _recurrent(x: Any, weights: Any) -> int:
    steps = prod(x.shape[:-1])
    return 2 * int(steps * sum(weight.numel() for weight in weights if weight.dim() == 2))


def multi_head_attention(
    query: Any, key: Any, value: Any, width: int, heads: int, *_: Any, **__: Any
) -> int:
    """`_native_multi_head_attention`: projections in, attention, projection out."""
    pairs = list(zip(_lengths(query), _lengths(key), strict=True))
    return sum(_self_attention(q, k, int(width)) for q, k in pairs)


def transformer_encoder_layer(
    src: Any, width: int, heads: int, qkv_weight: Any, *rest: Any, **named: Any
) -> int:
    """The fast path of `TransformerEncoderLayer`: attention and the two feed-forward products."""
    hidden = _feed_forward(rest, named)
    lengths = _lengths(src)
    feed = sum(4 * length * int(width) * hidden for length in lengths)
    return feed + sum(_self_attention(length, length, int(width)) for length in lengths)


_FFN_WEIGHT_PLACE = 10
"""Of `ffn_weight_1` among the arguments after `qkv_weight`."""


def _feed_forward(rest: tuple[Any, ...], named: dict[str, Any]) -> int:
    weight = named["ffn_weight_1"] if "ffn_weight_1" in named else rest[_FFN_WEIGHT_PLACE]
    return int(weight.shape[0])


def _self_attention(queries: int, keys: int, width: int) -> int:
    """Projections of queries and results, of keys and values; scores, and scores times values."""
    return 4 * width * (queries * width + keys * width + queries * keys)


def _lengths(x: Any) -> list[int]:
    """Of each sequence of a batch; those of a nested tensor differ."""
    if x.is_nested:
        return [int(length) for length in x._nested_tensor_size()[:, 0]]
    return [int(x.shape[1])] * int(x.shape[0])


def euclidean_distance(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """Distances of all pairs by way of one matrix product."""
    return 2 * int(prod(left.shape[:-1]) * right.shape[-2] * left.shape[-1])


def distance(left: Any, right: Any, *_: Any, **__: Any) -> int:
    """Distances of all pairs, each coordinate: difference, power, sum."""
    return 3 * int(prod(left.shape[:-1]) * right.shape[-2] * left.shape[-1])


# Ops that need no formula to be understood: a few operations for each byte that they touch.
#
# Pointwise ops, reductions, normalisations, pooling, losses, optimizers and the moving of data.
# Most carry a tag of torch's; the others are named here. What is in neither list may do any amount
# of work (a solver, a transform, somebody's own kernel).

_TAGS = ("pointwise", "reduction", "view_copy")
_BEGINNINGS = (
    *("_adaptive_", "_batch_norm_", "_embedding_bag", "_foreach_", "_fused_ada"),
    *("_fused_dropout", "_fused_rms_norm", "_fused_sgd", "_log_softmax", "_native_batch_norm_"),
    *("_nested_", "_safe_softmax", "_softmax", "_to_copy", "_unsafe_index", "_upsample_"),
    *("adaptive_", "avg_pool", "binary_cross_entropy", "embedding", "grid_sampler", "huber_loss"),
    *("index", "l1_loss", "log_sigmoid", "masked_", "max_pool", "mse_loss", "native_", "new_"),
    *("nll_loss", "pixel_", "reflection_pad", "replication_pad", "scatter", "smooth_l1_loss"),
    *("to_padded_tensor", "upsample_"),
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
