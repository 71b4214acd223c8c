"""A page asks the store many questions, and all are answered from one state of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.web import stored
from tests.web.conftest import client_of, reading
from torchstone.store import heartbeat, open_store
from torchstone.web.site import Site, export_site
from torchstone.web.sources import DataAccess

CASES = stored.keys(["timm"])


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database into which another program stores a run after the first question of a page."""
    path = tmp_path / "busy.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, CASES)
    asked: list[int] = []
    answered = DataAccess.choices

    def choices(self: DataAccess) -> Any:
        found = answered(self)
        asked.append(1)
        if len(asked) == 1:
            with open_store(str(path)) as writer:
                stored.add_night(writer, 1, CASES)
        return found

    monkeypatch.setattr(DataAccess, "choices", choices)
    return path


def test_a_page_does_not_see_what_comes_while_it_is_made(busy: Path) -> None:
    with client_of(busy) as client:
        first = client.get("/").text
        assert "nightly-0" in first
        assert "nightly-1" not in first
        assert "nightly-1" in client.get("/").text


def test_nor_does_the_api(busy: Path) -> None:
    with client_of(busy) as client:
        first = client.get("/api/v1/landing").json()
        (row, *_) = first["tables"]["timm-small"]["rows"]
        assert row["run"] == "night00x"
        (row, *_) = client.get("/api/v1/landing").json()["tables"]["timm-small"]["rows"]
        assert row["run"] == "night01x"


def test_nor_does_any_page_of_a_static_site(busy: Path) -> None:
    with reading(busy) as store:
        made = dict(Site(DataAccess(store), most=40).files())
    pages = {name: text.decode() for name, text in made.items() if name.endswith(".html")}
    assert "nightly-0" in pages["runs.html"]
    assert [name for name, text in pages.items() if "nightly-1" in text] == []


def test_the_next_asker_is_given_the_new_state(busy: Path) -> None:
    with client_of(busy) as client:
        tag = client.get("/").headers["etag"]
        again = client.get("/", headers={"if-none-match": tag})
        assert again.status_code == 200
        assert "nightly-1" in again.text


def test_all_pages_of_a_static_site_agree_on_what_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "half.db"
    run = stored.make_run(0, CASES)
    with open_store(str(path)) as store:
        store.begin_run(run)
        done = stored.replace(stored.metrics_of(CASES[0], 0), result_id="")
        store.add_cases(run.id, None, [(0, done)])
    site = tmp_path / "site"

    def running_ids(_: Path) -> frozenset[str]:
        """It ends when the first page has been written."""
        return frozenset() if list(site.glob("*.html")) else frozenset({run.id})

    monkeypatch.setattr(heartbeat, "running_ids", running_ids)
    export_site(site, str(path))
    pages = {page.name: page.read_text() for page in site.glob("*.html")}
    told = {
        state: {name for name, text in pages.items() if f'class="progress {state}"' in text}
        for state in ("running", "interrupted")
    }
    assert len(told["running"]) > 1
    assert told["interrupted"] == set()
