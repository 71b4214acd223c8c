"""What is missing is not found; what is damaged is an error of the server's."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.web.conftest import client_of
from torchstone.store import CorruptRunError, Store


def test_an_unknown_run_is_not_found(client: TestClient) -> None:
    assert client.get("/api/v1/runs/no-such-run").status_code == 404


def test_a_damaged_run_is_not_called_missing(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise CorruptRunError("night", "its plan is no JSON")

    with client_of(database) as client:  # one that has kept nothing yet
        monkeypatch.setattr(Store, "run_heads", broken)
        answer = client.get("/api/v1/runs")
    assert answer.status_code == 500
    assert "damaged" in answer.json()["error"]


def test_an_icon_without_a_hash_in_its_address_is_not_kept_for_a_year(client: TestClient) -> None:
    assert "immutable" not in client.get("/favicon.ico").headers["cache-control"]
