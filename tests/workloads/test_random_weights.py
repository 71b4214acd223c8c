"""Random weights under which a wrong answer shows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from torchstone.workloads.suites.vision import alive_notes, settle_norms, wake_weights

torch = pytest.importorskip("torch")
nn = torch.nn


def residual() -> Any:
    """A branch whose last normalisation and whose head start at 0, as libraries make them."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 5))
    nn.init.zeros_(made[1].weight)
    nn.init.zeros_(made[3].weight)
    return made


def images(seed: int = 1) -> Any:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def deep(scale: float) -> Any:
    """Thirty layers, each of which makes values smaller, or larger, until it knows better."""
    torch.manual_seed(0)
    layers: list[Any] = []
    for _ in range(30):
        convolution = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        nn.init.normal_(convolution.weight, std=scale)
        layers += [convolution, nn.BatchNorm2d(3), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_an_answer_that_hid_everything_shows_it() -> None:
    model = residual().eval()
    with torch.no_grad():
        assert torch.equal(model(images(1)), model(images(2)))
        assert wake_weights(model) == ("1.weight", "3.weight")
        assert not torch.equal(model(images(1)), model(images(2)))
        before = model(images())
        model[0].weight[0] += 1
        assert float((model(images()) - before).abs().max()) > 1e-3
    assert model[1].weight.unique().tolist() == pytest.approx([0.2])
    assert 0.01 < float(model[3].weight.detach().std()) < 0.03


def test_only_what_multiplies_and_sleeps_is_woken() -> None:
    class Odd(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.position = nn.Parameter(torch.zeros(1, 4))
            self.bias = nn.Parameter(torch.zeros(4))
            self.layer_scale = nn.Parameter(torch.full((4, 1, 1), 1e-6))
            self.skipinit_gain = nn.Parameter(torch.tensor(0.0))
            self.weight = nn.Parameter(torch.tensor([0.0, 0.1]))
            self.none_weight = nn.Parameter(torch.zeros(0, 4))

    odd = Odd()
    assert wake_weights(odd) == ("layer_scale", "skipinit_gain")
    assert float(odd.skipinit_gain.detach()) == pytest.approx(0.2)
    assert float((odd.position.abs().sum() + odd.bias.abs().sum()).detach()) == 0
    assert wake_weights(odd) == ()


@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_values_neither_vanish_nor_grow(scale: float) -> None:
    model = deep(scale).eval()
    with torch.no_grad():
        size = float(model(images()).abs().mean())
        assert size < 1e-20 or size > 1e20
        assert settle_norms(model, images()) == 30
        assert 0.01 < float(model(images(5)).abs().mean()) < 100
    for part in model:
        if isinstance(part, nn.BatchNorm2d):
            (variance,) = part.running_var.unique().tolist()
            assert math.log2(variance) == int(math.log2(variance)), "a power of two"
            assert part.running_mean.abs().max() == 0


def test_nothing_else_is_left_behind() -> None:
    model = deep(0.01).train()
    settle_norms(model, images())
    assert model.training
    assert not any(part._forward_pre_hooks for part in model.modules())
    before = model[1].running_var.clone()
    model.eval()(images() * 1000)
    assert torch.equal(model[1].running_var, before)


def test_a_model_without_norms_is_not_run() -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was run")

    model = nn.Linear(3, 3)
    model.register_forward_pre_hook(refuse)
    assert settle_norms(model, images()) == 0


def test_the_notes_say_what_was_changed() -> None:
    assert alive_notes((), 0) == ()
    (woken,) = alive_notes(("a", "b", "c", "d", "e"), 0)
    assert woken.endswith("what they multiply: a, b, c and 2 more")
    (settled,) = alive_notes((), 7)
    assert "of 7 batch normalisations" in settled
