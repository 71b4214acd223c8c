"""`torchstone list`: a line each, failures visible, reasons in full, strangers' labels harmless."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from torchstone.records import to_data
from torchstone.show.listing import LISTINGS, ModelRow, SuiteRow, TechniqueRow, VariantRow, listing
from torchstone.show.table import cells
from torchstone.store.limits import RunSummary, Summary
from torchstone.store.profiles import LedgerSummary, ProfileSummary
from torchstone.store.tunings import ScalingSummary, TuningSummary

from .synthetic_result import HOSTILE

CREATED = "2026-11-15T20:30:00+00:00"
RESULT = Summary(
    "r7k2m9",
    CREATED,
    "bench",
    "two_layer",
    "here",
    ("eager", "inductor"),
    ("ok", "ok"),
    "inductor: 1.52x faster",
    4096,
)
RESULTS = [
    RESULT,
    replace(RESULT, id="r0", outcomes=("ok", "crash", "crash", "wrong_answer")),
    replace(RESULT, id="r1", label="\x1b[2J" + "x" * 300, headline="long " * 60),
]
RUN = RunSummary(
    "1jz3k4m",
    CREATED,
    "nightly",
    "here",
    48,
    44,
    {"crash": 4, "ok": 40, "oom": 0},
    ("huggingface", "timm"),
)
RUNS = [
    RUN,
    replace(RUN, id="r2", label="", origin="dynamo-csv", planned=6, done=6, outcomes={"ok": 6}),
    replace(RUN, id="r3", label="", planned=6, done=0, outcomes={}),
]
PROFILE = ProfileSummary("p1", CREATED, "sample", "torchstone", "net.py:make", "m", "", 12_000)
LEDGER = LedgerSummary(
    "l1", CREATED, "net.py:make", "eager", "training", "fp32", "cpu", "m", 1.5e-5, 3, 900
)
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
HOSTILE_ROWS: dict[str, list[Any]] = {
    "results": [replace(RESULT, id=n[:30], label=n, kind=n, headline=n) for n in HOSTILE],
    "runs": [replace(RUN, id=n[:30], label=n, origin=n, suites=(n,)) for n in HOSTILE],
    "profiles": [replace(PROFILE, id=n[:30], label=n, how=n, tool=n) for n in HOSTILE],
    "ledgers": [replace(LEDGER, id=n[:30], target=n, variant=n) for n in HOSTILE],
    "tunings": [TuningSummary(n[:30], n, n, n, n, n, 3, (n,), 1.5) for n in HOSTILE],
    "scalings": [ScalingSummary(n[:30], n, n, n, 3, 1) for n in HOSTILE],
    "techniques": [TechniqueRow(n, n, n, (n,), n, n, (n,), n * 2) for n in HOSTILE],
    "suites": [SuiteRow(n, n, 3, 1, (n,), n * 4) for n in HOSTILE],
    "models": [ModelRow(n, n, n, n, (n,), n * 2) for n in HOSTILE],
    "variants": [row for n in HOSTILE for row in (VariantRow(n, n), VariantRow(n, n, n))],
}


def test_results() -> None:
    heading, first, second = listing("results", RESULTS[:2]).splitlines()
    assert heading.split() == ["id", "when", "kind", "arms", "outcome", "label", "result"]
    assert first.split()[:6] == ["r7k2m9", "2026-11-15", "20:30", "bench", "2", "ok"]
    assert first.endswith("inductor: 1.52x faster")
    assert "2 crash, wrong answer" in second
    assert "\x1b[1;31m2 crash, wrong answer" in listing("results", RESULTS, color=True, width=200)


def test_a_long_label_gives_way_so_that_a_row_is_a_line() -> None:
    label = "a label of more than a few words"
    text = listing("results", [replace(RESULT, id="01jx8k2m9abc", label=label, outcomes=("ok",))])
    assert len(text.splitlines()) == 2
    assert "a label o" in text


def test_runs() -> None:
    heading, first, second, third = listing("runs", RUNS).splitlines()
    assert heading.split() == ["id", "when", "done", "outcomes", "label", "suites"]
    assert " ".join(first.split()) == (
        "1jz3k4m 2026-11-15 20:30 44/48 40 ok, 4 crash nightly huggingface, timm"
    )
    assert "6/6  6 ok" in second
    assert "from dynamo-csv" in second
    assert "0/6" in third


def test_profiles_and_ledgers() -> None:
    assert listing("profiles", [PROFILE]).splitlines() == [
        "  id  when              how     tool            size  label",
        "  p1  2026-11-15 20:30  sample  torchstone  11.7 KiB  net.py:make",
    ]
    assert listing("ledgers", [LEDGER], unicode=False).splitlines() == [
        "  id  when              variant  mode      precision     step  findings  target",
        "  l1  2026-11-15 20:30  eager    training  fp32       15.0 us         3  net.py:make",
    ]


def test_techniques_say_what_they_may_break_and_why_they_cannot_run() -> None:
    rows = [
        TechniqueRow("one", "torchstone", "bitwise", ("inference",), "first", "the same", (), ""),
        TechniqueRow("two", "torchstone", "metric", ("training",), "second", "the same", (), "old"),
        TechniqueRow("three", "torchstone", "bitwise", ("training",), "third", "nothing", (), ""),
    ]
    notes = listing("techniques", rows).split("\n\n", 1)[1]
    assert notes == "may break\n  - one, two: the same\n\nwhy not\n  - two: old\n"


def test_suites() -> None:
    assert listing("suites", SUITES) == (
        "  suite        target           can run here  scales\n"
        "  huggingface  hf:NAME              39 of 39  small, full\n"
        "  torchbench   torchbench:NAME      31 of 60  small, full\n"
        "\n"
        "not all can run here\n"
        f"  - torchbench: {CHECKOUT[:80].rpartition(' ')[0]}\n"
        f"    {CHECKOUT[:80].rpartition(' ')[2]}{CHECKOUT[80:]}\n"
    )


def test_models_stand_under_their_suite_with_the_reasons_once() -> None:
    text = listing("models", MODELS)
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
    lines = listing("variants", rows).splitlines()
    assert lines[1] == "  inductor  the compiler"
    assert lines[-1] == "  - of torch.compile: onnxrt, tvm"


def test_nothing_says_what_to_do() -> None:
    said = {what: listing(what, []) for what in LISTINGS}
    assert "torchstone bench TARGET" in said["results"]
    assert "torchstone run" in said["runs"]
    assert "torchstone[suites]" in said["suites"]
    assert said["models"] == "no models\n"


@pytest.mark.parametrize("what", LISTINGS)
@pytest.mark.parametrize("width", [40, 60, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_they_fit_and_are_plain(what: str, width: int, unicode: bool) -> None:
    rows = HOSTILE_ROWS[what]
    text = listing(what, rows, width=width, unicode=unicode)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert unicode or text.isascii()
    assert "\x1b[" in listing(what, rows, color=True, width=width)


def test_rows_are_ready_for_json() -> None:
    assert to_data(SUITES[1])["runnable"] == 31
    assert to_data(MODELS[1])["missing"] == GRAPHS
