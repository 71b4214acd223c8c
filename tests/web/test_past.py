"""What is kept of the past is what the store would give; what changed in it is not missed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.web import stored
from tests.web.conftest import reading
from torchstone.records import CaseMetrics, FailureSpan, Outcome, Run, Selection
from torchstone.store import Store, open_store
from torchstone.web import sources
from torchstone.web.query import EVERY_S
from torchstone.web.sources import MOST_POINTS, DataAccess, PageCache

MIDDLE = stored.START.timestamp() + 3.5 * sources.DAY_S
"""Within the nights of the database."""
CASE = stored.keys(["timm"])[0]
SELECTIONS = (
    Selection(),
    Selection(suite="timm", mode="training"),
    Selection(since_s=MIDDLE + sources.DAY_S),
    Selection(until_s=MIDDLE - sources.DAY_S),
    Selection(since_s=MIDDLE - sources.DAY_S, until_s=MIDDLE + sources.DAY_S),
    Selection(branch="none"),
)


@pytest.fixture(autouse=True)
def edge_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RECENT_S", time.time() - MIDDLE)


@pytest.fixture
def grown(database: Path, tmp_path: Path) -> Path:
    path = tmp_path / "grown.db"
    shutil.copy(database, path)
    return path


@pytest.fixture
def store(grown: Path) -> Iterator[Store]:
    with reading(grown) as opened:
        yield opened


@pytest.mark.parametrize("every_s", sorted(EVERY_S.values()))
@pytest.mark.parametrize("selection", SELECTIONS)
def test_points_are_those_of_the_store(store: Store, selection: Selection, every_s: float) -> None:
    source = DataAccess(store, PageCache())
    for _ in range(2):  # read, then kept
        assert source.points(selection, every_s) == store.group_points(
            selection, MOST_POINTS, every_s
        )
        of_case = store.case_points(CASE, selection, MOST_POINTS, every_s)
        assert source.case_points(CASE, selection, every_s) == of_case


def test_the_past_is_not_asked_for_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DataAccess(store, PageCache())
    first = source.points(Selection())
    asked: list[Selection] = []
    read = store.group_points

    def noted(selection: Selection, *rest: object) -> object:
        asked.append(selection)
        return read(selection, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "group_points", noted)
    assert source.points(Selection()) == first
    assert [one.since_s is not None for one in asked] == [True]


def broken_off() -> Run:
    return stored.make_run(1, stored.keys(["timm"]), id="broken", label="broken")


def resumed(writer: Store) -> None:
    """A run of the past that was interrupted goes on."""
    figures = replace(stored.metrics_of(stored.keys(["timm"])[1], 1), result_id="", speedup=9.0)
    writer.add_cases("broken", None, [(1, figures)])


def imported(writer: Store) -> None:
    """Somebody else's run of the past is brought in."""
    run = stored.make_run(2, stored.keys(["timm"]), id="foreign", label="foreign")
    stored.add_run(writer, run, 2)


def evaluated(writer: Store) -> None:
    """Figures are worked out again."""
    writer.rebuild(
        lambda _, planned, __: CaseMetrics(planned.key, Outcome.OK, speedup=7.0), every=True
    )


@pytest.mark.parametrize("change", [resumed, imported, evaluated])
def test_what_changed_in_the_past_is_seen(
    grown: Path, store: Store, change: Callable[[Store], None]
) -> None:
    with open_store(str(grown)) as writer:
        stored.add_run(writer, broken_off(), 1, until=1)
        source = DataAccess(store, PageCache())
        before = source.points(Selection())
        assert source.case_points(CASE, Selection())
        change(writer)
        now = source.points(Selection())
        assert now == store.group_points(Selection(), MOST_POINTS)
        assert now != before
        assert source.case_points(CASE, Selection()) == store.case_points(CASE)


@pytest.mark.parametrize("change", [resumed, imported, evaluated])
def test_since_when_something_fails_follows_the_runs_before(
    grown: Path, store: Store, change: Callable[[Store], None]
) -> None:
    """The runs before say so, and each of these changes one of them."""
    asked: list[str] = []
    with open_store(str(grown)) as writer:
        stored.add_run(writer, broken_off(), 1, until=1)
        source = DataAccess(store, PageCache())
        head = source.heads(limit=1)[0]
        read = store.failures

        def noted(wanted: str, selection: Selection) -> list[FailureSpan]:
            asked.append(wanted)
            return read(wanted, selection)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "failures", noted)
            first = source.failures(head, Selection())
            assert first
            assert source.failures(head, Selection()) == first
            assert len(asked) == 1
            change(writer)
            assert source.failures(head, Selection()) == read(head.id, Selection())
            assert len(asked) == 2
