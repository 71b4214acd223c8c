"""Techniques: applied to real workloads, written as modifiers, measured as arms."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import ROOT, run_arms, torchstone
from torchstone.records import ArmSpec, Outcome, UsageError
from torchstone.variants import resolve_variant, uses_torch
from torchstone.variants.techniques import TECHNIQUES
from torchstone.variants.techniques.precision import quantise_int8

CHECK = """
import gc, json, sys, torch
from torchstone.records import ArmSpec
from torch.utils.data import DataLoader
from torchstone.records import NotSupported
from torchstone.variants import with_techniques
from torchstone.variants.registry import before_loading
from torchstone.workloads.load import load_workload
from torchstone.variants.techniques.batching import loader_workers
load = lambda target: load_workload(ArmSpec("x", target), lambda phase: None)
folder = sys.argv[2]
blocks = load(folder + ":blocks")
blocks.call(*blocks.inputs).sum().backward()
expected = {
    "folding": (lambda w: w.call(*w.inputs))(load(folder + ":folding")),
    "rows": (lambda w: w.call(*w.inputs))(load(folder + ":rows")),
    "blocks": blocks.call(*blocks.inputs),
    "gradient": blocks.call[0][0].weight.grad.clone(),
}
plain, plain_to = DataLoader.__init__, torch.Tensor.to
ranks = load(folder + ":ranks")
expected["ranks"] = ranks.call(*ranks.inputs)
expected["ranks"].sum().backward()
expected["ranks grad"] = ranks.call[0].weight.grad
for target, variant, check in json.loads(sys.argv[1]):
    before_loading(variant)
    try:
        made = with_techniques(load(target), variant)
    except NotSupported as error:
        assert "refused" in target and "torchao" in str(error), (variant, error)
        continue
    sizes = getattr(made.call, "SIZES", None)
    exec(check)
    DataLoader.__init__ = plain
"""
RANKS = (
    "out = made.call(*made.inputs); out.sum().backward()\n"
    "assert torch.allclose(out, expected['ranks'], atol=1e-6)\n"
    "is_shared = lambda weight: type(weight).__name__ == 'DTensor'\n"
    "grad = made.call[0].weight.grad\n"
    "assert torch.allclose(getattr(grad, 'full_tensor', lambda: grad)(), expected['ranks grad'])\n"
)
"""With one rank the answer is the model's own."""
CHECKS = {
    "gc_freeze": ("make", "assert gc.get_freeze_count() > 0; assert gc.get_threshold()[0] > 700"),
    "no_grad": (
        "grad",
        "assert made.call(torch.ones(2, requires_grad=True)).requires_grad is False",
    ),
    "inference_mode": ("grad", "assert made.call(torch.ones(2)).is_inference()"),
    "eval_mode": (
        "trained",
        "assert not made.call.__globals__['NORM'].training; made.call(torch.ones(4, 2))",
    ),
    "channels_last": (
        "conv",
        "assert made.call.weight.is_contiguous(memory_format=torch.channels_last)\n"
        "out = made.call(*made.inputs)\n"
        "assert out.is_contiguous(memory_format=torch.channels_last)",
    ),
    "fold_batchnorm": (
        "folding",
        "assert type(made.call[1]).__name__ == 'Identity'\n"
        "assert torch.allclose(made.call(*made.inputs), expected['folding'], atol=1e-5)",
    ),
    "float32": (
        "wide",
        "assert made.call(*made.inputs).dtype == torch.float32\n"
        "assert made.call.weight.dtype == torch.float32",
    ),
    "bf16_matmul": (
        "conv",
        "assert torch.get_float32_matmul_precision() == 'medium'\n"
        "torch.set_float32_matmul_precision('highest')",
    ),
    "fused_optimizer": (
        "adam",
        "opt = made.optimizer(made.call.parameters())\n"
        "assert opt.defaults['fused'] is True and opt.defaults['lr'] == 0.25\n"
        "assert opt.param_groups[0]['fused'] is True\n"
        "assert type(opt).__name__ == 'AdamW'",
    ),
    "foreach_optimizer": (
        "adam",
        "opt = made.optimizer(made.call.parameters())\n"
        "assert opt.param_groups[0]['foreach'] is True and opt.defaults['lr'] == 0.25",
    ),
    "micro_batches_4": (
        "rows",
        "made.call(*made.inputs); assert sizes == [2, 2, 2, 2], sizes\n"
        "assert torch.allclose(made.call(*made.inputs), expected['rows'])",
    ),
    "micro_batches_16": (
        "rows",
        "made.call(*made.inputs); assert sizes == [1] * 8, sizes",
    ),
    "larger_batch_2": (
        "rows",
        "out = made.call(*made.inputs); assert sizes == [16], sizes\n"
        "assert torch.equal(out, expected['rows'])",
    ),
    "larger_batch_8": ("rows", "made.call(*made.inputs); assert sizes == [64], sizes"),
    "accumulate_gradients_4": (
        "sgd",
        "layer = made.call; opt = made.optimizer(layer.parameters()); seen = []\n"
        "for step in range(8):\n"
        "    opt.zero_grad(); layer(torch.full((1, 2), 1.0 + step)).sum().backward(); opt.step()\n"
        "    seen.append(layer.bias[0].item())\n"
        "assert [len(set(some)) for some in (seen[:3], seen[3:7], seen)] == [1, 1, 3], seen\n"
        "assert abs(seen[0] - seen[3] - 0.5 * (1 + 0.125 * seen[0])) < 1e-6, 'of the mean'",
    ),
    "optimizer_adamw": (
        "sgd",
        "opt = made.optimizer(made.call.parameters())\n"
        "assert type(opt) is torch.optim.AdamW and opt.defaults['lr'] == 1e-3\n"
        "assert opt.param_groups[0]['weight_decay'] == 0.125",
    ),
    "optimizer_momentum": (
        "adam",
        "opt = made.optimizer(made.call.parameters())\n"
        "assert type(opt) is torch.optim.SGD and opt.defaults['nesterov']",
    ),
    "one_cycle_lr": (
        "sgd",
        "opt = made.optimizer(made.call.parameters()); rates = []\n"
        "for step in range(130): opt.step(); rates.append(opt.param_groups[0]['lr'])\n"
        "assert rates[0] == 0.5 and abs(max(rates) - 5) < 1e-9 and rates[-1] < 1e-9, rates\n"
        "assert rates.index(max(rates)) == 36",
    ),
    "non_blocking": (
        "make",
        "assert torch.Tensor.to is not plain_to\n"
        "assert torch.ones(2).to('cpu', torch.float64).dtype == torch.float64\n"
        "assert torch.ones(2).to('meta').device.type == 'meta'\n"
        "assert torch.ones(2).to(torch.ones(1).double()).dtype == torch.float64\n"
        "torch.Tensor.to = plain_to",
    ),
    "data_parallel": ("ranks", RANKS + "assert type(made.call[0].weight.grad) is torch.Tensor"),
    "sharded_data_parallel": ("ranks", RANKS + "assert is_shared(made.call[0].weight)"),
    "tensor_parallel": ("ranks", RANKS + "assert is_shared(made.call[2].weight)"),
    "loader_worker": ("loader", "assert made.call.loader.num_workers == 1"),
    "loader_workers": (
        "loader",
        "assert made.call.loader.num_workers >= 2\n"
        "assert made.call.loader.persistent_workers\n"
        "assert made.call.other.num_workers == 5, 'what the user asked for stays'",
    ),
    "loader_pinned": ("loader", "assert made.call.loader.pin_memory"),
    "checkpoint": (
        "blocks",
        "made.call(*made.inputs).sum().backward()\n"
        "assert torch.allclose(made.call[0][0].weight.grad, expected['gradient'])\n"
        "assert 'checkpoint' in repr(made.call[0].forward)",
    ),
    "checkpoint_selective": (
        "blocks",
        "made.call(*made.inputs).sum().backward()\n"
        "assert torch.allclose(made.call[0][0].weight.grad, expected['gradient'])",
    ),
    "int8_dynamic": (
        "blocks",
        "assert 'quantized' in type(made.call[0][0]).__module__\n"
        "out = made.call(*made.inputs)\n"
        "assert (out - expected['blocks']).abs().max() < 0.1",
    ),
    "torchao_int8_dynamic": ("refused", ""),
    "torchao_int8_weights": ("refused", ""),
    "prune_unstructured": (
        "blocks",
        "assert abs((made.call[0][0].weight == 0).float().mean() - 0.5) < 0.1",
    ),
    "prune_structured": (
        "hidden",
        "assert made.call[0].weight.shape == (4, 4) and made.call[2].weight.shape == (3, 4)\n"
        "assert made.call(*made.inputs).shape == (2, 3)",
    ),
    "compile_blocks": (
        "blocks",
        "assert all(block._compiled_call_impl is not None for block in made.call)",
    ),
}
"""By technique: a factory below, and what must hold afterwards."""
TARGETS = """
import torch
from torchstone.workloads import Workload

def make():
    return (lambda x: x + 1), (torch.ones(1),)

def grad():
    return (lambda x: x * 2), (torch.ones(1),)

def conv():
    return torch.nn.Conv2d(4, 4, 3), (torch.randn(1, 4, 8, 8),)

def adam():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),),
                    optimizer=lambda p: torch.optim.AdamW(p, lr=0.25, foreach=False))

def folding():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    model(torch.randn(4, 3, 8, 8))
    return model.eval(), (torch.randn(2, 3, 8, 8),)

NORM = torch.nn.BatchNorm1d(2)

def trained():
    return (lambda x: NORM(x)), (torch.ones(4, 2),)

def wide():
    return torch.nn.Linear(2, 2).double(), (torch.ones(1, 2, dtype=torch.float64),)

class Rows(torch.nn.Module):
    SIZES = []

    def forward(self, x):
        self.SIZES.append(len(x))
        return x * 2

def rows():
    return Rows(), (torch.arange(16.0).reshape(8, 2),)

class Loads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        data = [torch.zeros(1)] * 4
        self.loader = torch.utils.data.DataLoader(data)
        self.other = torch.utils.data.DataLoader(data, num_workers=5)

def loader():
    return Loads(), ()

def blocks():
    torch.manual_seed(0)
    one = lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    return torch.nn.Sequential(one(), one()), (torch.randn(2, 4),)

refused = blocks

def hidden():
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*layers), (torch.randn(2, 4),)

def sgd():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),),
                    optimizer=lambda p: torch.optim.SGD(p, lr=0.5, weight_decay=0.125))

def ranks():
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    torch.manual_seed(0)
    return hidden()

def rmsprop():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),), optimizer=torch.optim.RMSprop)

def fused():
    return Workload(torch.nn.Linear(2, 2), (torch.ones(1, 2),),
                    optimizer=lambda p: torch.optim.SGD(p, lr=0.1, fused=True))
"""
REFUSED = """
from torchstone.records import NotSupported
try:
    made.optimizer(made.call.parameters())
except NotSupported as error:
    assert {said!r} in str(error), error
else:
    raise AssertionError("the same optimizer as before is no remedy")
"""


def test_techniques_do_what_they_say(tmp_path: Path) -> None:
    """All in one process, because each would import torch."""
    path = tmp_path / "own.py"
    path.write_text(TARGETS, encoding="utf-8")
    ours = [name for name in TECHNIQUES if TECHNIQUES.source(name) == "torchstone"]
    assert set(CHECKS) == {name for name in ours if TECHNIQUES[name].modifier}
    jobs = [(f"{path}:{name}", f"eager+{one}", check) for one, (name, check) in CHECKS.items()]
    for name, said in (("rmsprop", "RMSprop has no fused"), ("fused", "SGD is fused already")):
        jobs.append((f"{path}:{name}", "eager+fused_optimizer", REFUSED.format(said=said)))
    done = subprocess.run(
        [sys.executable, "-c", CHECK, json.dumps(jobs), str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("bits", "refused"), [(16, True), (32, False)])
def test_int8_is_refused_where_sums_of_products_saturate(
    bits: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AVX2 adds two products of 8-bit integers in 16 bits, VNNI in 32. This CPU has one of them,
    so both are planted."""
    torch = pytest.importorskip("torch")
    most = 2.0 ** (bits - 1) - 1

    class Planted(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.weight = layer.weight.detach()

        def forward(self, x: Any) -> Any:
            scale_x, scale_w = x.max() / 255, self.weight.abs().max() / 127
            products = (x / scale_x).round()[:, None] * (self.weight / scale_w).round()
            pairs = products.unflatten(2, (-1, 2)).sum(3).clamp(-most - 1, most)
            return pairs.sum(2) * scale_x * scale_w

    def planted(model: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.nn.Sequential(Planted(model[0]))

    monkeypatch.setattr(torch.ao.quantization, "quantize_dynamic", planted)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    if refused:
        with pytest.raises(NotImplementedError, match="640 came out as 324"):
            quantise_int8(model)
    else:
        assert isinstance(quantise_int8(model)[0], Planted)


def test_a_technique_is_a_modifier_of_any_variant() -> None:
    found = resolve_variant("inductor+channels_last+dynamic")
    assert found.name == "inductor+dynamic+channels_last"
    assert "memory_format" in found.changes
    assert resolve_variant("eager+gc_freeze").unsupported(ArmSpec("a", "x.py:make")) is None
    with pytest.raises(UsageError, match="no modifier 'channel_last'") as refused:
        resolve_variant("eager+channel_last")
    assert "+channels_last" in refused.value.remedy


def test_what_needs_no_torch() -> None:
    assert not uses_torch("eager")
    assert not uses_torch("eager+gc_freeze")
    assert uses_torch("eager+no_grad")
    assert uses_torch("inductor+gc_freeze")


@pytest.mark.slow
def test_a_technique_measured_as_an_arm_keeps_the_answer() -> None:
    """And the stored command measures it again: no file of ours is left behind."""
    pytest.importorskip("torch")
    path = ROOT / "examples" / "two_layer.py"
    found = run_arms(
        ArmSpec("eager", f"{path}:make"),
        ArmSpec("frozen", f"{path}:make", variant="eager+gc_freeze"),
    )
    assert [arm.outcome for arm in found.arms] == [Outcome.OK, Outcome.OK]


def test_a_list_names_our_variants_and_techniques_as_ours() -> None:
    done = torchstone("list", "variants", "--json")
    source = {one["name"]: one["source"] for one in json.loads(done.stdout)["variants"]}
    ours = [one for one in TECHNIQUES.values() if one.modifier]
    names = ("eager", "inductor", *(f"+{one.name}" for one in ours))
    assert {source[name] for name in names} == {"torchstone"}
