"""Our formulas against figures by hand, on the real ops as torch shows them on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from tests.measure.door import all_formulas, own_points
from torchstone.measure import flops
from torchstone.measure.flops import (
    count_ops,
    known_formulas,
    load_formulas,
    self_test,
    torch_formulas,
)
from torchstone.records import Flops, UsageError

torch: Any = pytest.importorskip("torch")
functional = torch.nn.functional


def count(step: Callable[[], object]) -> Flops:
    return count_ops(step, all_formulas())


def test_every_line_names_an_op_of_torch_and_a_function() -> None:
    points = own_points()
    assert len(points) >= 15
    for point in points:
        assert callable(point.load())
        space, name = point.name.split(".")
        assert str(getattr(getattr(torch.ops, space), name)) == point.name
    assert not {point.name for point in points} & torch_formulas().keys()


@pytest.mark.skipif(not known_formulas(), reason="installed before there were formulas")
def test_the_door_gives_ours() -> None:
    found = {(point.name, point.value) for point in known_formulas()}
    assert found >= {(point.name, point.value) for point in own_points()}


M, N, K, B = 3, 7, 5, 2


@pytest.mark.parametrize(
    ("op", "call", "operations"),
    [
        ("aten.mv", lambda: torch.ones(M, K) @ torch.ones(K), 2 * M * K),
        ("aten.dot", lambda: torch.ones(K) @ torch.ones(K), 2 * K),
        ("aten.vdot", lambda: torch.vdot(torch.ones(K), torch.ones(K)), 2 * K),
        (
            "aten.addmv",
            lambda: torch.addmv(torch.ones(M), torch.ones(M, K), torch.ones(K)),
            2 * M * K,
        ),
        (
            "aten.addr",
            lambda: torch.addr(torch.ones(M, N), torch.ones(M), torch.ones(N)),
            2 * M * N,
        ),
        (
            "aten.addbmm",
            lambda: torch.addbmm(torch.ones(M, N), torch.ones(B, M, K), torch.ones(B, K, N)),
            2 * B * M * N * K,
        ),
        (
            "aten._addmm_activation",
            lambda: torch._addmm_activation(torch.ones(N), torch.ones(M, K), torch.ones(K, N)),
            2 * M * N * K,
        ),
        (
            "aten._euclidean_dist",
            lambda: torch.cdist(torch.ones(30, K), torch.ones(40, K)),
            2 * 30 * 40 * K,
        ),
        (
            "aten._cdist_forward",
            lambda: torch.cdist(torch.ones(M, K), torch.ones(N, K), p=1.0),
            3 * M * N * K,
        ),
    ],
)
def test_small_products(op: str, call: Callable[[], object], operations: int) -> None:
    assert count(call).by_op == {op: operations}


def test_products_by_group() -> None:
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has no grouped product")
    rows, experts = (torch.ones(16, 32).bfloat16(), torch.ones(2, 32, 48).bfloat16())
    ends = torch.tensor([4, 16], dtype=torch.int32)
    found = count(lambda: torch._grouped_mm(rows, experts, offs=ends))
    assert found.by_op == {"aten._grouped_mm": 2 * 16 * 32 * 48}
    many = torch.ones(2, 16, 32).bfloat16()
    assert flops.grouped_mm(many, experts) == 2 * 2 * 16 * 32 * 48


BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 16, 24, 8
ATTENTION = 2 * (2 * BATCH * HEADS * QUERIES * KEYS * WIDTH)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_backward(causal: bool) -> None:
    sizes = (QUERIES, QUERIES if causal else KEYS, QUERIES if causal else KEYS)
    q, k, v = (torch.ones(BATCH, HEADS, n, WIDTH, requires_grad=True) for n in sizes)

    def step() -> None:
        functional.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()

    forward = ATTENTION * sizes[1] // KEYS  # causal attention counts in full
    op = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert count(step).by_op == {op: forward, f"{op}_backward": forward * 5 // 2}


def test_attention_counts_as_torch_counts_it_on_an_accelerator() -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    q, k, v = (torch.ones(BATCH, HEADS, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
    assert flops.attention(q, k, v) == sdpa_flop_count(q.shape, k.shape, v.shape) == ATTENTION
    assert flops.attention_backward(q, q, k, v) == sdpa_backward_flop_count(
        q.shape, q.shape, k.shape, v.shape
    )


def test_attention_in_parts_counts_once() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.ones(BATCH, HEADS, n, WIDTH) for n in (QUERIES, KEYS, KEYS))
    with sdpa_kernel(SDPBackend.MATH):
        found = count(lambda: functional.scaled_dot_product_attention(q, k, v))
    assert found.by_op == {"aten.bmm": ATTENTION}


STEPS, SEQUENCES, INPUT, HIDDEN = 5, 3, 8, 16


def recurrent(gates: int) -> int:
    return 2 * STEPS * SEQUENCES * gates * HIDDEN * (INPUT + HIDDEN)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_recurrent_layers(kind: str, gates: int, mode: str) -> None:
    net, x = getattr(torch.nn, kind)(INPUT, HIDDEN), torch.ones(STEPS, SEQUENCES, INPUT)
    with getattr(torch, mode)():
        assert count(lambda: net(x)).total == recurrent(gates)


def test_two_layers_both_ways() -> None:
    net = torch.nn.LSTM(INPUT, HIDDEN, num_layers=2, bidirectional=True)
    with torch.no_grad():
        found = count(lambda: net(torch.ones(STEPS, SEQUENCES, INPUT)))
    second = 2 * STEPS * SEQUENCES * 4 * HIDDEN * (2 * HIDDEN + HIDDEN)
    assert found.by_op == {"aten.mkldnn_rnn_layer": 2 * recurrent(4) + 2 * second}


def test_training_an_lstm_is_three_times_its_forward_pass() -> None:
    net, x = torch.nn.LSTM(INPUT, HIDDEN), torch.ones(STEPS, SEQUENCES, INPUT)
    found = count(lambda: net(x)[0].sum().backward())
    assert found.by_op == {
        "aten.mkldnn_rnn_layer": recurrent(4),
        "aten.mkldnn_rnn_layer_backward": 2 * recurrent(4),
    }


def test_the_recurrent_formula_of_an_accelerator() -> None:
    """No such device here: the formula alone, with the weights that the op is given."""
    net, x = torch.nn.LSTM(INPUT, HIDDEN), torch.ones(STEPS, SEQUENCES, INPUT)
    weights = [p.detach() for p in net.parameters()]
    assert flops.cudnn_rnn(x, weights, 4) == recurrent(4)
    assert flops.cudnn_rnn_backward(x, weights, 4) == 2 * recurrent(4)


TOKENS, MODEL, FEED = 6, 16, 32


def encoder(lengths: list[int]) -> int:
    """Four projections, scores and values, two feed-forward products."""
    per_token = 4 * 2 * MODEL * MODEL + 2 * 2 * MODEL * FEED
    return sum(n * per_token + 2 * 2 * n * n * MODEL for n in lengths)


def transformer() -> Any:
    layer = torch.nn.TransformerEncoderLayer(MODEL, 4, FEED, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=True).eval()


def test_the_fast_path_counts_as_much_as_the_slow_one() -> None:
    net, x = transformer(), torch.ones(BATCH, TOKENS, MODEL)
    with torch.no_grad():
        fast = count(lambda: net(x))
    assert fast.by_op == {"aten._transformer_encoder_layer_fwd": encoder([TOKENS] * BATCH)}
    slow = count(lambda: net(x))
    assert slow.total == fast.total
    assert "aten.addmm" in slow.by_op


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_is_no_work_on_the_fast_path() -> None:
    net, x = transformer(), torch.ones(BATCH, TOKENS, MODEL)
    padding = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    padding[1, 2:] = True
    with torch.no_grad():
        found = count(lambda: net(x, src_key_padding_mask=padding))
    assert found.total == encoder([TOKENS, 2])


def test_multi_head_attention() -> None:
    net = torch.nn.MultiheadAttention(MODEL, 4, batch_first=True).eval()
    x = torch.ones(BATCH, TOKENS, MODEL)
    projections = 4 * 2 * TOKENS * MODEL * MODEL
    with torch.no_grad():
        found = count(lambda: net(x, x, x))
    assert found.by_op == {
        "aten._native_multi_head_attention": BATCH * (projections + 2 * 2 * TOKENS * TOKENS * MODEL)
    }


def test_ops_that_inference_mode_leaves_whole_are_taken_apart_once() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.Conv1d(M, 4, 1))
    x = torch.ones(M, K)
    with torch.inference_mode():
        found = count(lambda: net(x))
    assert found.by_op == {"aten.addmm": 2 * M * K * N, "aten.convolution": 2 * M * 4 * N}


def test_a_formula_for_the_whole_leaves_its_parts_uncounted() -> None:
    x, weight = torch.ones(M, K), torch.ones(N, K)
    whole = {**all_formulas(), "aten.linear": lambda x, w, *_, **__: 2 * x.numel() * w.shape[0]}
    with torch.inference_mode():
        found = count_ops(lambda: functional.linear(x, weight), whole)
    assert found.by_op == {"aten.linear": 2 * M * K * N}


def test_zeros_that_are_not_stored_are_not_counted() -> None:
    sparse = torch.eye(50).to_sparse()
    found = count(lambda: sparse @ torch.ones(50, 3))
    assert found.total == 0
    assert "aten.mm" in found.uncovered


def test_a_formula_that_fails_leaves_its_op_uncovered() -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise AssertionError("not such shapes")

    x = torch.ones(M, M)
    found = count_ops(lambda: (x @ x, x @ x[0]), {**all_formulas(), "aten.mv": broken})
    assert found.by_op == {"aten.mm": 2 * M * M * M}
    assert set(found.uncovered) == {"aten.mv", "aten.select"}  # in the order of their time


def test_the_formulas_pass_their_own_test() -> None:
    assert self_test(all_formulas()) is None
    assert self_test(torch_formulas()) is None


@pytest.mark.parametrize("op", ["aten.mm", "aten.addmm", "aten.bmm", "aten.mv", "aten.convolution"])
def test_multiply_adds_are_caught(op: str) -> None:
    honest = all_formulas()
    halved = {**honest, op: lambda *a, **k: honest[op](*a, **k) // 2}
    said = self_test(halved)
    assert said is not None
    assert op in said
    assert "multiply-adds" in said


def test_counting_twice_is_caught() -> None:
    honest = all_formulas()
    said = self_test({**honest, "aten.mm": lambda *a, **k: 2 * honest["aten.mm"](*a, **k)})
    assert said is not None
    assert "twice" in said


def test_no_formula_for_a_matrix_product_is_caught() -> None:
    assert "matrix product" in str(self_test({}))


def test_a_plug_in_that_cannot_be_loaded_is_named() -> None:
    point = EntryPoint("lib.op", "no_such_module:formula", flops.FORMULAS.group)
    with pytest.raises(UsageError, match=r"lib\.op .*no_such_module"):
        load_formulas([point])
