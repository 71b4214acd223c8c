"""The pages of monitors: live, escaped, and of this machine alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.monitor.test_compare import training
from torchstone.monitor.journal import Journal
from torchstone.records.monitoring import MonitorEvent, MonitorLevel
from torchstone.web.site import Site
from torchstone.web.views.monitors import PROGRESS

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHSTONE_MONITORS", str(tmp_path))
    return tmp_path


def test_a_page_changes_with_the_record(client: TestClient, folder: Path) -> None:
    assert "No monitor is recorded" in client.get("/monitors").text
    record = training(folder / "digits-1", 20)
    first = client.get(PROGRESS).json()["state"]
    page = client.get("/monitors/digits-1").text
    assert "waiting for data" in page
    assert f'data-progress="{PROGRESS}"' in page
    header = record.ranks[0].header
    assert header is not None
    journal = Journal(record.folder, replace(header, name=HOSTILE))
    journal.write([MonitorEvent(1030.0, 137, "loss", MonitorLevel.WARN, f"NaN {HOSTILE}")])
    journal.close()
    assert client.get(PROGRESS).json()["state"] != first
    page = client.get("/monitors/digits-1").text
    assert "NaN" in page
    assert HOSTILE not in page
    events = client.get("/api/v1/monitors/digits-1/tables/events").json()
    assert events["rows"][0]["step"] == 137


def test_one_that_is_not_there_is_not_found(client: TestClient, folder: Path) -> None:
    answer = client.get("/monitors/nothing")
    assert answer.status_code == 404
    assert "There is no monitor" in answer.text


def test_a_site_has_none_of_this_machine() -> None:
    from torchstone.show.page import Link

    site = Site.__new__(Site)
    site._known = set()
    assert not site.wants(Link("monitors"))
