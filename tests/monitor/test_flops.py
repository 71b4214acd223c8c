"""FLOPs of a watched step: counted in a child, on tensors without data, for the batch that came."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

import torchstone
from torchstone.monitor.flops import FlopsCount, count_step
from torchstone.monitor.journal import open_record
from torchstone.monitor.views import view_of
from torchstone.records import Peak
from torchstone.show.monitor import flops_words

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

BATCH, IN, HIDDEN = 4, 8, 16
STEP = 2 * BATCH * IN * HIDDEN * 2 + 2 * BATCH * HIDDEN * 3
"""The first layer needs no gradient of its input: twice; the second: three times."""


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = two_layers()

    def forward(self, *, features: Any, labels: Any) -> dict[str, Any]:
        out = self.layers(features)
        return {"loss": (out - labels).square().mean(), "out": out}


class AsLightning(ByName):
    def training_step(self, batch: Any, number: int) -> Any:
        features, labels = batch
        return (self.layers(features) - labels).square().mean()


PAIR = [("0", (BATCH, IN), "float32", "cpu"), ("1", (BATCH, 1), "float32", "cpu")]


@pytest.mark.parametrize("wrap", ["plain", "compiled"])
def test_a_step_is_counted_exactly(wrap: str) -> None:
    model = two_layers()
    called = torch.compile(model, backend="eager") if wrap == "compiled" else model
    assert count_step(called, PAIR) == (STEP, "model(first)")
    assert count_step(called, PAIR[:1]) == (STEP, "model(batch)")


def test_a_training_step_of_lightning_is_called() -> None:
    assert count_step(AsLightning(), PAIR) == (STEP, "training_step(batch)")


def test_a_batch_with_names_is_given_by_name() -> None:
    batch = [
        ("features", (BATCH, IN), "float32", "cpu"),
        ("labels", (BATCH, 1), "float32", "cpu"),
    ]
    assert count_step(ByName(), batch) == (STEP, "model(**batch)")


def test_tokens_without_data_are_counted() -> None:
    model = nn.Sequential(nn.Embedding(10, IN), nn.Flatten(), nn.Linear(IN * 5, 1))
    batch = [("0", (BATCH, 5), "int64", "cpu")]
    assert count_step(model, batch) == (3 * 2 * BATCH * IN * 5, "model(batch)")


def test_a_model_that_cannot_be_called_so_is_said() -> None:
    batch = [("0", (BATCH, IN + 1), "float32", "cpu"), ("1", (3,), "float32", "cpu")]
    flops, how = count_step(two_layers(), batch)
    assert flops == 0
    assert "Error" in how


def test_a_child_that_dies_or_hangs_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for late, said in ((60.0, "died"), (-1.0, "too long")):
        monkeypatch.setattr("torchstone.monitor.flops.LONGEST_S", late)
        monkeypatch.setattr("torchstone.monitor.flops.count_step", lambda *_: 1 / 0)
        count = FlopsCount()
        count.begin(None, ())
        end = time.monotonic() + 30
        while (found := count.look()) is None and time.monotonic() < end:
            time.sleep(0.01)
        assert found is not None
        assert found.flops == 0
        assert said in found.how
        assert count.look() is None  # said once, and no child is left


def test_a_watched_training_has_flops_and_a_share_of_the_peak(tmp_path: Path) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with torchstone.monitor("flops", model=model, optimizer=optimizer, folder=tmp_path) as m:
        m._look_s = 0.05
        for _ in m.steps(torch.ones(BATCH, IN) for _ in range(100_000)):
            optimizer.zero_grad()
            model(torch.ones(BATCH, IN)).sum().backward()
            optimizer.step()
            if m._header.flops_per_step and m._collector._flops:
                break
    record = open_record(tmp_path)
    view = view_of(record)
    assert view.flops_per_step == STEP
    assert (view.dtype, view.flops_how) == ("float32", "model(batch)")
    known = [one for one in record.ranks[0].chunks if one.flops is not None]
    assert known
    assert all(one.flops and one.flops % STEP == 0 for one in known)
    rate = view.ranks[0].whole.flops_per_second
    assert rate
    assert "25 % of the float32 peak" in flops_words(
        view, view.ranks[0].whole, Peak(4 * rate, dtype="float32")
    )
    assert "peak not known" in flops_words(view, view.ranks[0].whole, None)


def test_a_larger_batch_needs_more(tmp_path: Path) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    opened = torchstone.monitor("flops", model=model, optimizer=optimizer, folder=tmp_path)
    with opened as m:
        m._flops = 0.0  # not counted
        m._collector.flops = (100.0, math.log(BATCH * IN))
        for batch in m.steps([torch.ones(BATCH, IN), torch.ones(3 * BATCH, IN)]):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    (chunk,) = open_record(tmp_path).ranks[0].chunks
    assert chunk.flops == pytest.approx(400.0)
