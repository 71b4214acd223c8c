"""What there is to run, and the stored runs: a line each, reasons in full."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from torchstone.records import to_data
from torchstone.show import (
    ModelRow,
    SuiteRow,
    VariantRow,
    models_listing,
    runs_listing,
    suites_listing,
    variants_listing,
)
from torchstone.show.table import cells

from .synthetic_result import HOSTILE

CHECKOUT = (
    "29 models need a checkout of pytorch/benchmark; give --torchbench PATH or set a variable"
)
GRAPHS = "torch_geometric is not installed; pip install torch_geometric"
SUITES = [
    SuiteRow("huggingface", "hf", 39, 39, ("small", "full")),
    SuiteRow("torchbench", "torchbench", 60, 31, ("small", "full"), CHECKOUT),
]
MODELS = [
    ModelRow("torchbench", "dcgan", "vision", "quick", ("inference", "training")),
    *(
        ModelRow("torchbench", f"graph_{i}", "graph", "full", ("inference",), GRAPHS)
        for i in range(9)
    ),
    ModelRow("huggingface", "BertForMaskedLM", "text", "standard", ("inference", "training")),
]


@dataclass(frozen=True)
class Stored:
    id: str = "1jz3k4m"
    created: str = "2026-11-15T20:30:00+00:00"
    label: str = "nightly"
    origin: str = "here"
    planned: int = 48
    done: int = 44
    outcomes: Mapping[str, int] = field(default_factory=lambda: {"crash": 4, "ok": 40, "oom": 0})
    suites: tuple[str, ...] = ("huggingface", "timm")


RUNS = [
    Stored(),
    Stored("r2", label="", origin="dynamo-csv", planned=6, done=6, outcomes={"ok": 6}),
    Stored("r3", label="", planned=6, done=0, outcomes={}),
]
HOSTILE_ROWS: list[tuple[Callable[..., str], list[Any]]] = [
    (suites_listing, [SuiteRow(n, n, 3, 1, (n,), n * 4) for n in HOSTILE]),
    (models_listing, [ModelRow(n, n, n, n, (n,), n * 2) for n in HOSTILE]),
    (
        variants_listing,
        [VariantRow(n, n) for n in HOSTILE] + [VariantRow(n, n, n) for n in HOSTILE],
    ),
    (runs_listing, [Stored(id=n[:30], label=n, origin=n, suites=(n,)) for n in HOSTILE]),
]


def test_suites() -> None:
    assert suites_listing(SUITES, width=100) == (
        "  suite        target           can run here  scales\n"
        "  huggingface  hf:NAME              39 of 39  small, full\n"
        "  torchbench   torchbench:NAME      31 of 60  small, full\n"
        "\n"
        "not all can run here\n"
        f"  - torchbench: {CHECKOUT[:80].rpartition(' ')[0]}\n"
        f"    {CHECKOUT[:80].rpartition(' ')[2]}{CHECKOUT[80:]}\n"
    )


def test_models_stand_under_their_suite_with_the_reasons_once() -> None:
    text = models_listing(MODELS, width=100)
    lines = text.splitlines()
    assert lines[0].split() == ["family", "tier", "modes", "runs", "here"]
    assert lines[1] == "  torchbench  1 of 10 models can run here"
    assert lines[2].split() == ["dcgan", "vision", "quick", "inference,", "training", "yes"]
    assert lines[3].split() == ["graph_0", "graph", "full", "inference", "no"]
    assert "  huggingface  1 of 1 model can run here" in lines
    assert text.count("torch_geometric is not installed") == 1
    assert "torchbench/graph_7 and 1 more" in " ".join(text.split())


def test_variants() -> None:
    rows = [
        VariantRow("inductor", "torchstone", "the compiler"),
        VariantRow("onnxrt", "torch.compile"),
        VariantRow("tvm", "torch.compile"),
    ]
    lines = variants_listing(rows).splitlines()
    assert lines[1] == "  inductor  the compiler"
    assert lines[-1] == "  - of torch.compile: onnxrt, tvm"


def test_runs() -> None:
    heading, first, second, third = runs_listing(RUNS, width=100).splitlines()
    assert heading.split() == ["id", "when", "done", "outcomes", "label", "suites"]
    assert " ".join(first.split()) == (
        "1jz3k4m 2026-11-15 20:30 44/48 40 ok, 4 crash nightly huggingface, timm"
    )
    assert "6/6  6 ok" in second
    assert "from dynamo-csv" in second
    assert "0/6" in third


def test_nothing_says_what_to_do() -> None:
    assert "torchstone[suites]" in suites_listing([])
    assert "torchstone run" in runs_listing([])
    assert models_listing([]) == "no models\n"
    assert variants_listing([]) == "no variants\n"


@pytest.mark.parametrize(("draw", "rows"), HOSTILE_ROWS)
@pytest.mark.parametrize("width", [40, 60, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_they_fit_and_are_plain(
    draw: Callable[..., str], rows: list[Any], width: int, unicode: bool
) -> None:
    text = draw(rows, width=width, unicode=unicode)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert unicode or text.isascii()
    assert "\x1b[" in draw(rows, color=True, width=width)


def test_rows_are_ready_for_json() -> None:
    assert to_data(SUITES[1])["runnable"] == 31
    assert to_data(MODELS[1])["missing"] == GRAPHS
