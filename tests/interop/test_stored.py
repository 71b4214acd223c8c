"""Imported runs in a real store: kept whole, exported as they were, never mixed with ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.support import (
    HUGGINGFACE,
    TABLES,
    TORCHBENCH,
    own_view,
    read_csv,
    read_hud,
)
from torchstone import stats
from torchstone.interop import Format, Imported
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.interop.hud_v3 import HUD_V3
from torchstone.records import FOREIGN_DEFINITION, UsageError
from torchstone.store import open_store

CSV = [f"{HUGGINGFACE}_{name}" for name in TABLES]
HUD = [f"{TORCHBENCH}_{name}" for name in TABLES]


@pytest.mark.parametrize(
    ("form", "imported"),
    [(DYNAMO_CSV, read_csv(*CSV)), (HUD_V3, read_hud(*HUD))],
    ids=["dynamo-csv", "hud-v3"],
)
def test_an_import_comes_out_of_the_store_as_it_went_in(
    form: Format, imported: Imported, tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "x.db")) as store:
        store.import_run(imported.run, imported.cases, imported.run.origin)
        view = store.run_view(imported.run.id)
    assert view.cases == imported.cases
    assert view.run.origin == form.name
    assert form.write(view) == form.write(imported.view)


def test_statistics_refuse_to_mix_theirs_with_ours() -> None:
    theirs, ours = read_csv(*CSV).cases, own_view().cases
    with pytest.raises(UsageError, match="do not mix"):
        stats.summarise([*theirs, *ours])
    with pytest.raises(UsageError, match="do not mix"):
        stats.geometric_mean_speedup([*ours, *theirs])


def test_a_summary_of_theirs_has_a_pass_rate_and_no_figure() -> None:
    (summary,) = stats.summarise(read_csv(*CSV).view.complete)
    assert (summary.passes.passed, summary.passes.counted) == (3, 10)
    assert summary.speedup.value is None
    assert summary.memory_ratio.value is None
    assert summary.compile_cold_ns.value is None
    assert summary.figures_definition == FOREIGN_DEFINITION
