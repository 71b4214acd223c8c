"""Figures of two definitions in one history: both are drawn, and no line joins them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.web import stored
from tests.web.conftest import reading
from tests.web.test_views import view
from torchstone.records import METRICS_DEFINITION
from torchstone.show.page import charts_of
from torchstone.store import open_store
from torchstone.web.sources import DataAccess

OLDER = METRICS_DEFINITION - 1


def test_no_line_is_of_two_definitions(tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    keys = [key for key in stored.keys(["timm"]) if key.mode == "inference"]
    with open_store(str(path)) as store:
        for night in range(4):
            definition = OLDER if night < 2 else METRICS_DEFINITION
            stored.add_run(
                store,
                stored.make_run(night, keys),
                night,
                lambda one, used=definition: replace(one, definition=used),
            )
    with reading(path) as store:
        source = DataAccess(store)
        case = view(source, "case", suite="timm", model="resnet18", variant="inductor")
        landing = view(source, "landing", suite="timm", variant="inductor")
    for page, chart, name in (
        (case, "speedup", "speed-up"),
        (landing, "timm-small-speedup", "inductor"),
    ):
        found = {one.name: one.points for one in charts_of(page)[chart].series}
        assert {line: len(points) for line, points in found.items()} == {
            f"{name} by definition {OLDER}": 2,
            name: 2,
        }
