"""The pages of tunings: the adopted steps, every experiment, time against memory, the recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuning.made import tuning
from tests.web.conftest import client_of
from torchstone.records import Decision
from torchstone.store import open_store
from torchstone.web.views.tunings import EXPERIMENTS

pytest.importorskip("fastapi")

from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("tunings") / "t.db"
    found = tuning()
    with open_store(str(path)) as store:
        store.begin_tuning(replace(found, experiments=(), adopted=(), state="running"))
        for one in found.experiments:
            store.add_experiment(found.id, one)
        store.end_tuning(found)
    with client_of(path) as made:
        yield made


def test_the_list_has_the_tuning_with_its_gain(client: TestClient) -> None:
    page = client.get("/tunings")
    assert page.status_code == 200
    assert "1tuned" in page.text
    assert "channels_last" in page.text
    (row,) = client.get("/api/v1/tunings").json()["tables"]["tunings"]["rows"]
    assert row["speedup"] == pytest.approx(1.6)


def test_one_page_has_all_that_was_tried(client: TestClient) -> None:
    page = client.get("/tunings/1tuned")
    assert page.status_code == 200
    for words in ("Adopted steps", "Time and memory", "def apply", "zeros instead", "wrong answer"):
        assert words in page.text, words
    assert page.text.count("<svg") >= 2
    assert re.search(r'href="/result/r\d"', page.text)
    assert "<script>alert" not in page.text, "a reason quotes user code"
    found = client.get("/api/v1/tunings/1tuned").json()
    rows = {row["technique"]: row for row in found["tables"]["experiments"]["rows"]}
    assert rows["compile"]["decision"] == Decision.WRONG_ANSWER.value
    front = [one["name"] for one in found["charts"]["pareto"]["data"] if one["front"]]
    assert front == ["recipe"]


def test_what_was_not_measured_has_no_figures() -> None:
    (one, *_) = tuning().experiments
    stopped = replace(one, decision=Decision.NOT_RUN, memory_ratio=59.0)
    (memory,) = [made.cell for made in EXPERIMENTS if made.column.key == "memory"]
    measured = replace(one, decision=Decision.ADOPTED, memory_ratio=0.5)
    assert memory(measured).text == "50 %"
    assert memory(stopped).text == ""


def test_a_tuning_that_is_not_there_is_not_found(client: TestClient) -> None:
    assert client.get("/tunings/nothing").status_code == 404


def test_a_recipe_that_was_not_confirmed_has_a_page(tmp_path: Path) -> None:
    found = tuning()
    doubt = replace(found.experiments[-1], decision=Decision.CANNOT_TELL)
    with open_store(str(tmp_path / "t.db")) as store:
        store.begin_tuning(found)
        for one in (*found.experiments[:-1], doubt):
            store.add_experiment(found.id, one)
        store.end_tuning(found)
    with client_of(tmp_path / "t.db") as client:
        page = client.get("/tunings/1tuned")
    assert page.status_code == 200
    assert "cannot tell" in page.text
