"""Scalings: stored, listed, shown, and the dashboard's pages of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.targets.support import torchstone
from tests.web.conftest import client_of
from torchstone.records import ArmSpec, Measurement, Outcome, OutcomeDetail, UsageError
from torchstone.records.scaling import (
    Communication,
    Efficiency,
    GradientCheck,
    RankArm,
    Scaling,
)
from torchstone.store import open_store

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

MOVED = Communication(0.002, 0.0015, 0.0005, 0.001, 4096.0, 3.0, 0.01)


def arm(name: str, ranks: int, outcome: Outcome = Outcome.OK, **more: object) -> RankArm:
    spec = ArmSpec(name, "<b>net</b>.py:make", mode="training")
    measured = Measurement(spec, outcome, OutcomeDetail())
    return RankArm(name.split("×")[0], ranks, measured, (0.01,) * ranks, **more)  # type: ignore[arg-type]


FOUND = Scaling(
    "1scaled",
    "2026-11-18T10:00:00+00:00",
    "<b>net</b>.py:make",
    "strong",
    1,
    2,
    (
        arm("plain", 1),
        arm(
            "ddp×2",
            2,
            efficiency=(Efficiency("ddp×1", 0.81, (0.75, 0.9)),),
            communication=MOVED,
            gradients=GradientCheck(1e-7, 1e-5, 1.0, "weight"),
        ),
        arm("fsdp×2", 2, Outcome.WRONG_ANSWER, gradients=GradientCheck(1.0, 1e-5, 2.0, "weight")),
    ),
    "m1",
    "2.13.0",
    ("two ranks on two shared cores: not a speed claim",),
    ("torchstone", "scaling", "net.py:make"),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scalings") / "t.db"
    with open_store(str(path)) as store:
        store.save_scaling(FOUND)
    return path


@pytest.fixture(scope="module")
def client(path: Path) -> Iterator[TestClient]:
    with client_of(path) as made:
        yield made


def test_a_scaling_comes_out_as_it_went_in_and_once(path: Path) -> None:
    with open_store(str(path)) as store:
        assert store.load_scaling("1sca") == FOUND
        with pytest.raises(UsageError):
            store.save_scaling(FOUND)
        (row,) = store.list_scalings()
    assert (row.id, row.arms, row.failed) == ("1scaled", 3, 1)


def test_show_and_list_have_it(path: Path) -> None:
    shown = torchstone("show", "last", "--db", str(path))
    assert "81%" in shown.stdout
    assert "2.00× one rank's" in shown.stdout
    listed = torchstone("list", "scalings", "--db", str(path))
    assert "1scaled" in listed.stdout


def test_the_first_page_leads_to_the_newest(client: TestClient) -> None:
    page = client.get("/").text
    head = page.partition('id="headline-elsewhere"')[2].partition("</section>")[0]
    assert 'href="/scalings/1scaled"' in head
    assert "1 of 3 arms failed" in head
    assert "m-fail" in head


def test_the_pages_have_arms_and_findings(client: TestClient) -> None:
    (row,) = client.get("/api/v1/scalings").json()["tables"]["scalings"]["rows"]
    assert row["failed"] == 1
    page = client.get("/scalings/1scaled")
    assert page.status_code == 200
    for told in ("not a speed claim", "81%", "4.00 KiB", "2.00× one rank", "Efficiency"):
        assert told in page.text, told
    assert "<b>net" not in page.text
    assert "cannot tell" not in page.text, "an efficiency is no verdict"
    assert "waiting for the last rank" in page.text, "nothing is cut off"
    assert client.get("/scalings/none").status_code == 404
