"""Operations and bytes of a step of the plain workload: the counting pass of an arm.

Formulas for ops that torch itself counts as nothing: from an op's arguments to its operations.

A multiplication and an addition are two operations. What is counted is the multiplying and adding
of matrix products; biases, activations, softmax and scaling are left out, as torch leaves them out
of its own formulas. Each function takes an op's arguments in the order of its schema.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from math import prod
from typing import Any, cast

from torchstone.measure.arm import Built, Phase, build
from torchstone.measure.loops import wall_clock
from torchstone.measure.traffic import Watch, tensors
from torchstone.records import ArmSpec, Flops, OpWork, UsageError
from torchstone.records.plugins import Registry
from torchstone.workloads import walk


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


# Where formulas come from: torch's own, and those behind the entry points `torchstone.formulas`.
#
# An entry point's name is the op's (`aten.mv`, `mylib.my_op`: its name without the overload); its
# object is a `Formula`. It stands before torch's own of the same name.

_OURS = {
    "aten._addmm_activation": "addmm",
    "aten._cdist_forward": "distance",
    "aten._cudnn_rnn": "cudnn_rnn",
    "aten._cudnn_rnn_backward": "cudnn_rnn_backward",
    "aten._euclidean_dist": "euclidean_distance",
    "aten._grouped_mm": "grouped_mm",
    "aten._native_multi_head_attention": "multi_head_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu": "attention",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "aten._transformer_encoder_layer_fwd": "transformer_encoder_layer",
    "aten.addbmm": "addbmm",
    "aten.addmv": "addmv",
    "aten.addr": "addr",
    "aten.dot": "dot",
    "aten.mkldnn_rnn_layer": "mkldnn_rnn_layer",
    "aten.mkldnn_rnn_layer_backward": "mkldnn_rnn_layer_backward",
    "aten.mv": "mv",
    "aten.vdot": "dot",
}
FORMULAS = Registry(
    "torchstone.formulas",
    {op: f"torchstone.measure.flops:{name}" for op, name in _OURS.items()},
)

Formula = Callable[..., int]
"""From an op's arguments, and its result as `out_val`, to its floating-point operations."""


def known_formulas() -> tuple[metadata.EntryPoint, ...]:
    """Installed formulas by op, nothing loaded yet; two for one op are refused."""
    points = FORMULAS.all()
    for one, other in itertools.pairwise(points):
        if one.name == other.name:
            raise UsageError(
                f"Two plug-ins have a formula for {one.name}: {one.value} and {other.value}.",
                "Remove one of them.",
            )
    return points


def load_formulas(points: Iterable[metadata.EntryPoint]) -> dict[str, Formula]:
    """Torch's formulas and the plug-ins', by the op's name."""
    return {**torch_formulas(), **{point.name: _load(point) for point in points}}


def torch_formulas() -> dict[str, Formula]:
    """The formulas that torch has registered, by the op's name (`aten.mm`)."""
    from torch.utils.flop_counter import flop_registry

    return {str(op): formula for op, formula in flop_registry.items()}


def _load(point: metadata.EntryPoint) -> Formula:
    try:
        return cast("Formula", point.load())
    except Exception as error:  # whatever a plug-in does wrong
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"The formula for {point.name} ({point.value}) cannot be loaded: {said}.",
            "Report it to its author, or remove the plug-in.",
        ) from None


# Calls, time, operations and bytes of a step, summed by op.

MOST_NAMED = 12
MOST_UNCOVERED = 5
MOST_HEAVY = 8


class Tally:
    """What the counting pass has seen."""

    def __init__(self, formulas: Mapping[str, Formula], traffic: bool = True) -> None:
        self.formulas = formulas
        self._traffic = traffic
        """Whether bytes are counted; tensors without data (`meta`) have none to look at."""
        self.calls: Counter[str] = Counter()
        self.time_ns: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.largest = 0
        self.plain: set[str] = set()
        self.without: set[str] = set()
        self.watch = Watch()

    def add(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, ns: int
    ) -> None:
        """One call of an op, and how long it took."""
        op = op_name(func)
        self.calls[op] += 1
        self.time_ns[op] += ns
        touched = self.watch.add(func, args, kwargs, result) if self._traffic else 0
        self.bytes[op] += touched
        self.largest = max(self.largest, touched)
        if is_plain(func):
            self.plain.add(op)
        operations = self._operations(op, args, kwargs, result)
        if operations is None:
            self.without.add(op)
        else:
            self.operations[op] += operations

    def _operations(
        self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> int | None:
        """By the op's formula; None where there is none, or it does not know such operands."""
        formula = self.formulas.get(op)
        if formula is None or any(map(_is_sparse, tensors((args, kwargs)))):
            return None  # every formula counts the zeros that a sparse operand spares
        try:
            return int(formula(*args, **kwargs, out_val=result))
        except Exception:  # an assertion of a formula about shapes that it was not made for
            return None

    def flops(self, left_behind: Any = None) -> Flops:
        """The sums. `left_behind` is what the step returned and the gradients it made."""
        covered = self.calls.keys() - self.without
        understood = covered | self.plain
        dearest = [op for op, _ in self.time_ns.most_common() if op not in covered]
        by_op = Counter({op: self.operations[op] for op in covered})
        return Flops(
            total=sum(by_op.values()),
            by_op=dict(by_op.most_common(MOST_NAMED)),
            ops=sum(self.calls.values()),
            ops_covered=sum(self.calls[op] for op in covered),
            time_covered=self._share(covered),
            uncovered=tuple(dearest[:MOST_UNCOVERED]),
            bytes=sum(self.bytes.values()),
            least_bytes=self.watch.least(left_behind),
            heaviest=tuple(self._work(op) for op, _ in self.time_ns.most_common(MOST_HEAVY)),
            time_understood=self._share(understood),
            largest_bytes=self.largest,
        )

    @property
    def total_ns(self) -> int:
        """Time in ops."""
        return sum(self.time_ns.values())

    def _share(self, ops: set[str]) -> float:
        spent = sum(self.time_ns[op] for op in ops)
        return spent / self.total_ns if self.total_ns else 0.0

    def _work(self, op: str) -> OpWork:
        return OpWork(
            op=op,
            calls=self.calls[op],
            flops=None if op in self.without else self.operations[op],
            bytes=self.bytes[op],
            time_ns=self.time_ns[op],
        )


def op_name(func: Any) -> str:
    """`aten.mm`: the op without its overload."""
    return str(getattr(func, "_overloadpacket", func))


def _is_sparse(tensor: Any) -> bool:
    return str(tensor.layout).startswith("torch.sparse")


# Ops seen one by one as plain eager code runs them.
#
# An op with a formula is counted by it and not looked into. An op that is nothing but others
# (`linear`, where inference mode leaves it whole) is taken apart as eager does, and its parts are
# counted instead. So nothing counts twice.

_SILENT = ("profiler",)
"""Namespaces of ops that only leave marks for others."""


def count_ops(
    step: Callable[[], object],
    formulas: Mapping[str, Formula],
    synchronize: Callable[[], None] | None = None,
) -> Flops:
    """Run `step` once and count what its ops do, those of a backward pass included."""
    tally = Tally(formulas)
    output = tally_ops(step, tally, synchronize)
    return tally.flops(output)


def tally_ops(
    step: Callable[[], object], tally: Tally, synchronize: Callable[[], None] | None = None
) -> object:
    """Run `step` once, every op of it added to the tally; returns what it returns."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Sees each op below autograd and autocast, as the backend is about to run it."""

        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Torch would load its compiler, which takes seconds, to keep it out of here.
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if op_name(func) not in tally.formulas and _is_only_others(func, args):
                with self:
                    return func.decompose(*args, **kwargs)
            started = wall_clock()
            result = func(*args, **kwargs)
            if synchronize is not None:
                synchronize()
            took = wall_clock() - started
            if getattr(func, "namespace", "") not in _SILENT:
                tally.add(func, args, kwargs, result, took)
            return result

    with Counting():  # type: ignore[no-untyped-call]
        return step()


def _is_only_others(func: Any, args: tuple[Any, ...]) -> bool:
    """Implemented for every device by other ops alone, and its operands are plain tensors."""
    from torch._C import DispatchKey

    has_kernel = getattr(func, "has_kernel_for_dispatch_key", None)
    if has_kernel is None or not has_kernel(DispatchKey.CompositeImplicitAutograd):
        return False
    return not any(tensor.is_nested or tensor.is_sparse for tensor in tensors(args))


# The test that formulas must pass before their counts are believed: ops of known size.
#
# A tool that counts multiply-adds reports half of what one that counts operations does, and both
# call it FLOPs. So the real ops run here on small operands, and the counts must be exact.

_M, _N, _K, _B = 3, 7, 5, 2


def self_test(formulas: Mapping[str, Formula]) -> str | None:
    """What is wrong with the formulas, in a sentence; None where the known ops count exactly."""
    import torch

    if "aten.mm" not in formulas:
        return "There is no formula for a matrix product."
    with torch.no_grad():
        for name, call, operations in _known():
            found = count_ops(call, formulas)
            if found.total == operations or not found.ops_covered:
                continue
            hint = ": it counts multiply-adds" if 2 * found.total == operations else ""
            if found.total == 2 * operations:
                hint = ": something counts twice"
            return (
                f"The formula for {name} gives {found.total} operations where there are "
                f"{operations}{hint}."
            )
    return None


def _known() -> Iterator[tuple[str, Callable[[], object], int]]:
    """Ops, calls of them, and their operations by hand."""
    import torch
    from torch.nn import functional

    left, right, vector = torch.ones(_M, _K), torch.ones(_K, _N), torch.ones(_K)
    many, others = torch.ones(_B, _M, _K), torch.ones(_B, _K, _N)
    image, filters = torch.ones(1, _B, 4, 6), torch.ones(_M, _B, 3, 3)
    query = torch.ones(1, _B, _M, 8)
    attention = functional.scaled_dot_product_attention
    product, pixels = 2 * _M * _N * _K, _M * 4 * 6
    yield "aten.mm", lambda: left @ right, product
    yield "aten.addmm", lambda: torch.addmm(torch.ones(_N), left, right), product
    yield "aten.bmm", lambda: many @ others, _B * product
    added = torch.ones(_B, _M, _N)
    yield "aten.baddbmm", lambda: torch.baddbmm(added, many, others), _B * product
    yield "aten.mv", lambda: left @ vector, 2 * _M * _K
    yield "aten.dot", lambda: vector @ vector, 2 * _K
    convolution = 2 * pixels * (_B * 3 * 3)
    yield "aten.convolution", lambda: functional.conv2d(image, filters, padding=1), convolution
    yield "attention", lambda: attention(query, query, query), 4 * _B * _M * _M * 8


MOST_PASSES = 3
MORE_PASSES_NS = 500_000_000
"""Passes are repeated for so long: the times of ops are noisy, and the quickest pass is the least
disturbed. Counts are the same in each."""


def count_flops(arm: ArmSpec, phase: Phase) -> Flops | None:
    """Of one step of the plain workload, in the arm's mode and precision; None without torch ops.

    A step runs first that is not counted: by then first-touch costs are paid and the optimizer
    has its state. A `UsageError` where the formulas fail their test: no figure is better than a
    wrong one.
    """
    points = known_formulas()
    built = build(replace(arm, variant="eager"), phase)
    if built.is_statement or "torch" not in sys.modules:
        return None
    phase("counting")
    formulas = load_formulas(points)
    wrong = self_test(formulas)
    if wrong:
        raise UsageError(wrong, "Remove the plug-in that brings the formula.")
    inputs = built.inputs(arm.seed)
    built.call(inputs)
    tallies: list[tuple[Tally, Any]] = []
    started = wall_clock()
    for _ in range(MOST_PASSES):
        phase("counting")
        tally = Tally(formulas)
        output = tally_ops(lambda: built.call(inputs), tally, built.device.synchronize)
        tallies.append((tally, output))
        if wall_clock() - started > MORE_PASSES_NS:
            break
    tally, output = min(tallies, key=lambda pair: pair[0].total_ns)
    found = tally.flops(_left_behind(built, output))
    return found if found.ops else None


def _left_behind(built: Built, output: Any) -> list[Any]:
    """What the step returns, and in training the gradients that it made."""
    left = [leaf for _, leaf in walk(output, "")]
    module = built.prepared.module if built.prepared and built.prepared.training else None
    if module is not None:
        left += [p.grad for p in module.parameters() if p.grad is not None]
    return left
