"""Which runs a page is about: words, links and droplists mean what they mean in the command."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.test_compare import call
from tests.track import made
from tests.web import stored
from tests.web.conftest import client_of, reading
from torchstone.records import CaseMetrics, Conditions, GitState, RunView
from torchstone.records.format import format_percent
from torchstone.show.page import Group, Notice, Page, Table, tables_of, walk
from torchstone.store import open_store
from torchstone.web.context import LISTED
from torchstone.web.query import NotFound, parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess

CASES = stored.keys(["timm"])[:4]


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights, each of its own build of torch; then two commits that begin alike, and a run
    on another machine."""
    path = tmp_path_factory.mktemp("nightly") / "nightly.db"
    elsewhere = {"machine_id": "elsewhere", "label": "far"}
    with open_store(str(path)) as store:
        for night in range(3):
            run = stored.make_run(night, CASES, torch=f"2.14.0.dev2026110{night}")
            stored.add_run(store, run, night)
        for night, commit in ((3, "abcd1111"), (4, "abcd2222")):
            git = GitState(commit * 5, "feature", False)
            stored.add_run(store, stored.make_run(night, CASES, git=git), night)
        early = (stored.START - timedelta(days=1)).isoformat()
        run = stored.make_run(9, CASES, id="faraway", created=early, **elsewhere)
        stored.add_run(store, run, 0)
    return path


@pytest.fixture
def source(nightly: Path) -> Iterator[DataAccess]:
    with reading(nightly) as store:
        yield DataAccess(store)


def view(source: DataAccess, name: str, ident: str = "", **asked: str) -> Page:
    return PAGES[name].view(source, parse(asked.items()), ident)


def notices(page: Page) -> list[str]:
    return [one.text for one in walk(page.sections) if isinstance(one, Notice)]


def cell_values(table: Table, key: str) -> dict[tuple[object, ...], object]:
    """By model, mode and variant what stands in a column."""
    keys = [one.key for one in table.columns]
    wanted = [keys.index(one) for one in ("model", "mode", "variant")]
    return {
        tuple(row[place].value for place in wanted): row[keys.index(key)].value
        for row in table.rows
    }


@pytest.mark.parametrize(
    ("word", "run"),
    [
        ("commit:abcd1", "night03x"),
        ("torch:2.14.0.dev20261101", "night01x"),
        ("latest", "night04x"),
        ("latest~1", "night03x"),
        ("branch:main", "night02x"),
        ("machine:elsewhere", "faraway"),
        ("label:far", "faraway"),
        ("night00", "night00x"),
    ],
)
def test_a_word_means_on_a_page_what_it_means_in_the_command(
    source: DataAccess, nightly: Path, word: str, run: str
) -> None:
    assert source.head(word).id == run
    done = call("compare", word, word, "--json", "-", "--db", str(nightly))
    assert json.loads(done.stdout)["new"]["id"] == run, done.stderr


def test_a_word_that_means_several_things_is_refused_on_both(
    source: DataAccess, nightly: Path
) -> None:
    with pytest.raises(NotFound) as caught:
        view(source, "compare", base="abcd")
    done = call("compare", "abcd", "night04x", "--db", str(nightly))
    assert done.returncode == 2
    said = "commit:abcd2222abcd2222abcd2222abcd2222abcd2222 (run night04x), commit:abcd1111"
    assert said in caught.value.message
    assert said in done.stderr


def test_no_address_opens_a_file(nightly: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{}")
    with client_of(nightly) as client:
        for before in ("", "file:"):
            absent = tmp_path / "gone.json"  # no answer may tell which is there
            answers = [
                client.get("/api/v1/compare", params={"base": f"{before}{one}"})
                for one in (path, absent)
            ]
            assert [answer.status_code for answer in answers] == [404, 404]
            said = [answer.json()["error"] for answer in answers]
            assert all(text.startswith("There is no ") for text in said)
            assert not any("such a file" in text for text in said)


def test_naming_a_machine_asks_how_machines_compare(source: DataAccess) -> None:
    page = view(source, "compare", base="machine:elsewhere", new="night00x")
    assert "cases" in tables_of(page)
    assert any(text.startswith("another machine, as asked") for text in notices(page))
    assert "cases" not in tables_of(view(source, "compare", base="faraway", new="night00x"))


def test_a_nightly_is_held_against_the_night_before_whatever_its_torch(source: DataAccess) -> None:
    page = view(source, "landing", branch="main")
    (table,) = tables_of(page).values()
    assert {"change", "threshold"} <= {one.key for one in table.columns if one.shown}
    said = "two builds of torch: 2.14.0.dev20261101 and 2.14.0.dev20261102"
    (place,) = [i for i, one in enumerate(page.sections) if isinstance(one, Notice)]
    assert said in notices(page)[0]
    assert place < next(i for i, one in enumerate(page.sections) if isinstance(one, Group))


def test_what_may_differ_is_chosen_on_every_page_and_goes_along(source: DataAccess) -> None:
    two = {"base": "faraway", "new": "night00x", "across": "machines"}
    model = {"suite": "timm", "model": CASES[0].model}
    for name, more in (("landing", {}), ("suite", {}), ("case", model), ("compare", {})):
        page = view(source, name, **two, **more)
        assert page.controls is not None
        (choice,) = [one for one in page.controls.choices if one.name == "across"]
        assert choice.value == "machines"
        assert "torch" not in [value for value, _ in choice.options]
    (table,) = tables_of(view(source, "landing", **two)).values()
    to = table.rows[0][0].to
    assert to is not None
    assert ("across", "machines") in to.params


def test_a_run_can_be_made_the_base(source: DataAccess) -> None:
    actions = dict(view(source, "run", "night00x").actions)
    assert dict(actions["Use as base"].params) == {"base": "night00x"}
    newest = dict(actions["Compare with the newest"].params)
    assert newest == {"base": "night00x", "new": "night02x"}, "of its machine and branch"
    assert len(tables_of(view(source, "compare", **newest))["cases"].rows) == len(CASES)
    assert "Compare with the newest" not in dict(view(source, "run", "night02x").actions)


def test_a_base_variant_alone_says_what_to_choose(source: DataAccess) -> None:
    asked = {"base": "night00x", "new": "night01x", "base_variant": "inductor+dynamic"}
    page = view(source, "compare", **asked)
    (notice,) = [n for n in walk(page.sections) if isinstance(n, Notice) and "variant" in n.text]
    assert "inductor+dynamic is paired with no other yet" in notice.text
    assert "Variant" in notice.remedy
    paired = view(source, "compare", **asked, variant="inductor")
    assert not any("no other yet" in text for text in notices(paired))


def test_a_page_does_not_grow_with_every_branch_there_ever_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, many = tmp_path / "many.db", LISTED + 20
    with open_store(str(path)) as store:
        for number in range(many):
            run = stored.make_run(
                0,
                CASES[:1],
                id=f"r{number:05d}",
                created=(stored.START + timedelta(minutes=number)).isoformat(),
                git=GitState(f"{number:08x}" * 5, f"branch-{number:05d}", False),
                torch=f"2.14.0.dev{number:05d}",
                machine_id=f"m{number:05d}",
            )
            store.begin_run(run)
        figures = replace(stored.metrics_of(CASES[0], 0), result_id="")
        store.add_cases(f"r{many - 1:05d}", None, [(0, figures)])
    with reading(path) as store:
        page = view(DataAccess(store), "landing", branch="branch-00007")
        choices = store.choices()
    assert page.controls is not None
    for choice in page.controls.choices:
        assert len(choice.options) <= LISTED + 2, choice.name
    (branches,) = [one for one in page.controls.choices if one.name == "branch"]
    named = [value for value, _ in branches.options]
    assert named[:2] == ["all", f"branch-{many - 1:05d}"], "the newest first"
    assert (branches.value, named[-1]) == ("branch-00007", "branch-00007")
    sizes = []
    for number in (0, 5_000):  # storing so many runs takes minutes
        more = tuple(f"old-{place}" for place in range(number))
        grown = replace(
            choices, branches=(*choices.branches, *more), torches=(*choices.torches, *more)
        )
        monkeypatch.setattr(DataAccess, "choices", lambda self, grown=grown: grown)
        with client_of(path) as client:
            sizes.append(len(client.get("/").text))
    assert sizes[0] == sizes[1]


def lonely(figures: CaseMetrics, log: float) -> CaseMetrics:
    """A change that is found by itself (p = 0.02) and lost among the cases of a suite."""
    if (figures.key.model, figures.key.mode) != ("model01", "training"):
        return figures
    return replace(figures, speedup=math.exp(log), log_error=0.009, log_freedom=30.0)


@pytest.fixture(scope="module")
def border(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("border") / "border.db"
    plan = [*made.keys(40), *made.keys(4, mode="training"), *made.keys(4, variant="aot_eager")]
    with open_store(str(path)) as store:
        for number, (run_id, log) in enumerate((("one", 0.0), ("two", -0.03))):
            created = {"created": f"2026-11-1{number}T02:00:00+00:00"}
            told: RunView = made.view(number, plan, run_id=run_id, changes=created, error=0.002)
            store.begin_run(told.run)
            cases = [lonely(case, log) for case in told.cases]
            store.add_cases(told.run.id, None, list(enumerate(cases)))
    return path


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({}, []),
        ({"mode": "training"}, ["--mode", "training"]),
        ({"suite": "timm", "precision": "fp32"}, ["--suite", "timm", "--precision", "fp32"]),
        ({"variant": "aot_eager"}, ["--variant", "aot_eager"]),
        (
            {"base_variant": "inductor", "variant": "aot_eager"},
            ["--variant", "inductor=aot_eager"],
        ),
    ],
    ids=str,
)
def test_page_and_command_give_a_case_the_same_verdict(
    border: Path, asked: dict[str, str], options: list[str]
) -> None:
    with reading(border) as store:
        page = view(DataAccess(store), "compare", base="one", new="two", **asked)
    done = call("compare", "one", "two", *options, "--json", "-", "--db", str(border))
    data = json.loads(done.stdout)
    told = {(c["model"], c["mode"], c["variant"]): c for c in data["cases"]}
    for key, in_json in (("verdict", "verdict"), ("moved", "moved"), ("threshold", "threshold")):
        shown = cell_values(tables_of(page)["cases"], key)
        assert {name: value or None for name, value in shown.items()} == {
            name: case[in_json] or None for name, case in told.items()
        }
    groups = tables_of(page)["groups"]
    place = [one.key for one in groups.columns].index("verdict")
    verdicts = [row[place].value or None for row in groups.rows]
    assert verdicts == [group["verdict"] for group in data["groups"]]
    if "mode" in asked:
        assert told["model01", "training", "inductor"]["verdict"] == "not faster"
        assert told["model01", "training", "inductor"]["alone"] == "slower"


@pytest.mark.parametrize(("floor", "applied"), [(0.0, 0.01), (0.031, 0.0441)])
def test_the_threshold_that_is_applied_is_shown(
    tmp_path: Path, floor: float, applied: float
) -> None:
    path, cases = tmp_path / "floor.db", stored.keys(["timm"])
    with open_store(str(path)) as store:
        for night in range(2):
            stored.add_run(store, stored.make_run(night, cases), night)
        for kind in ("under 1 ms", "1-10 ms", "10-100 ms", "over 100 ms"):
            if floor:
                store.remember_aa_floor(stored.MACHINE, Conditions(1, "keep", kind), floor, {})
    said = f"the change exceeds the noise limit of {format_percent(applied)} ("
    with reading(path) as store:
        source = DataAccess(store)
        landing, compared, suite = (view(source, name) for name in ("landing", "compare", "suite"))
    (group,) = [one for one in landing.sections if isinstance(one, Group) and one.title == "Suites"]
    assert said in group.note
    assert said in tables_of(compared)["groups"].note
    assert said in tables_of(suite)["models"].note
    for table in (*tables_of(landing).values(), tables_of(compared)["groups"]):
        place = [one.key for one in table.columns].index("threshold")
        assert {row[place].text for row in table.rows} == {format_percent(applied)}
    done = call("compare", "latest~1", "latest", "--db", str(path))
    assert f"beyond {format_percent(applied)}" in " ".join(done.stdout.split())
