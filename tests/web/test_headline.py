"""The first lines of the overview: is anything bad, and in which suite?"""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.web import long_history, stored
from tests.web.conftest import client_of
from torchstone.records import RunHead
from torchstone.show.page import Headline, Notice, Page, tables_of
from torchstone.store import open_store
from torchstone.web.context import resolve
from torchstone.web.query import ServerLinks, outside, parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("one") / "one.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, stored.keys(("timm",)))
    return path


def page_of(path: Path, name: str, **asked: str) -> Page:
    with open_store(str(path), read_only=True) as store:
        return PAGES[name].view(DataAccess(store), parse(list(asked.items())), "")


def lines(page: Page) -> dict[str, dict[str, int]]:
    found = [one for one in page.sections if isinstance(one, Headline)]
    return {one.name: {name: int(cell.value or 0) for name, cell in one.items} for one in found}


def test_counts_are_over_every_suite_mode_and_precision(database: Path) -> None:
    page = page_of(database, "landing")
    changes, levels = lines(page)["headline-changes"], lines(page)["headline-levels"]
    rows = page_of(database, "compare")
    kinds = [row[3].value for row in _whole(rows, "cases")]
    assert sum(changes.values()) <= len(kinds)
    assert changes["newly failing"] == kinds.count("newly failing")
    everything = _whole(page_of(database, "suite", suite="all"), "models")
    assert len(everything) == len(stored.SUITES["huggingface"] + stored.SUITES["timm"]) * 4
    failing = _whole(page_of(database, "suite", suite="all", outcome="failing"), "models")
    assert levels["failing"] == len(failing) > 0


def test_every_count_leads_to_as_many_cases(database: Path) -> None:
    page = page_of(database, "landing")
    followed = 0
    for one in page.sections:
        if not isinstance(one, Headline):
            continue
        for _, cell in one.items:
            if cell.to is None:
                assert cell.value == 0
                continue
            shown = page_of(database, cell.to.page, **dict(cell.to.params))
            assert len(_whole(shown, "models")) == cell.value
            followed += 1
    assert followed > 2


def test_bad_counts_name_their_suites_and_are_marked(database: Path) -> None:
    page = page_of(database, "landing")
    (changes,) = [one for one in page.sections if getattr(one, "name", "") == "headline-changes"]
    assert isinstance(changes, Headline)
    slower = dict(changes.items)["slower"]
    assert (slower.mark, slower.detail) == ("worse", f"huggingface@small {slower.value}")
    assert dict(changes.items)["newly passing"].detail == ""


def test_without_a_base_only_levels_are_told(single: Path) -> None:
    page = page_of(single, "landing")
    assert list(lines(page)) == ["headline-levels"]
    with client_of(single) as client:
        text = client.get("/").text
    assert "There is no earlier run to compare with" in text
    assert text.index("headline-levels") < text.index('id="choices"')


def test_a_pull_request_is_compared_with_main(tmp_path: Path) -> None:
    path = tmp_path / "pr.db"
    cases = stored.keys(("timm",))
    with open_store(str(path)) as store:
        for night in range(2):
            stored.add_night(store, night, cases)
        run = stored.make_run(2, cases)
        assert run.git is not None
        changed = replace(run, id="pr1", git=replace(run.git, branch="feature"))
        store.begin_run(changed)
        store.add_cases("pr1", None, [(i, stored.metrics_of(k, 2)) for i, k in enumerate(cases)])
    with open_store(str(path), read_only=True) as store:
        context = resolve(DataAccess(store), parse([("branch", "feature")]))
    assert context.new is not None
    assert context.new.branch == "feature"
    base: RunHead | None = context.base
    assert base is not None
    assert base.branch == "main"


@pytest.mark.parametrize("accepted", ["gzip", "br, gzip;q=0.5"])
def test_answers_are_compressed_for_whoever_reads_that(database: Path, accepted: str) -> None:
    with client_of(database) as client:
        plain = client.get("/", headers={"accept-encoding": "identity"})
        packed = client.get("/", headers={"accept-encoding": accepted})
        again = client.get("/", headers={"accept-encoding": accepted})
    assert "content-encoding" not in plain.headers
    for one in (packed, again):
        assert one.headers["content-encoding"] == "gzip"
        assert one.text == plain.text
        assert int(one.headers["content-length"]) < len(gzip.compress(plain.content)) * 1.2
        assert "accept-encoding" in one.headers["vary"]


def test_whoever_refuses_it_gets_it_plain(database: Path) -> None:
    with client_of(database) as client:
        found = client.get("/", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in found.headers


def _whole(page: Page, name: str) -> list[tuple[object, ...]]:
    table = tables_of(page)[name]
    return list(table.rows if table.whole is None else table.whole())


def test_the_api_has_a_page_for_people(database: Path) -> None:
    with client_of(database) as client:
        answer = client.get("/docs")
        described = client.get("/api/v1/openapi.json").json()["paths"]
    assert answer.status_code == 200
    ends = ("/tables/{name}", "/charts/{name}.svg")
    for path in described:
        if path.endswith(ends):  # told once, not beside every page
            assert f"…{path[path.rindex(path.split('/')[-2]) - 1 :]}" in answer.text
        else:
            assert f"<dt>{path}</dt>" in answer.text
    asked = {
        one["name"] for told in described.values() for one in told["get"].get("parameters", ())
    }
    for name in asked:
        assert answer.text.count(f"<dt>{name}</dt>") == 1, name
    assert 'href="/api/v1/landing"' in answer.text


def test_commits_pull_requests_and_jobs_are_links(tmp_path: Path) -> None:
    path = tmp_path / "linked.db"
    cases = stored.keys(("timm",))
    links = {
        "repository": "https://git.example/lab/models",
        "pull_request": "https://git.example/lab/models/pull/7",
        "job": "https://git.example/lab/models/actions/runs/12",
    }
    with open_store(str(path)) as store:
        for night in range(2):
            stored.add_run(store, replace(stored.make_run(night, cases), links=links), night)
    for page in (page_of(path, "landing"), page_of(path, "compare")):
        found = {name: to.ident for name, to in page.actions}
        assert found["Pull request"] == links["pull_request"]
        assert found["CI job"] == links["job"]
        assert found["Commits since the base"].startswith(f"{links['repository']}/compare/00c0ffee")
        assert "...01c0ffee" in found["Commits since the base"]
    with open_store(str(path), read_only=True) as store:
        source = DataAccess(store, repository="https://elsewhere.example/x/")
        (head, *_) = source.heads()
        assert source.commit_link(head) == outside(
            f"https://elsewhere.example/x/commit/{head.commit}"
        )
    assert outside("javascript:alert(1)") is None
    assert ServerLinks().url(outside("https://a.example/b")) == "https://a.example/b"


def test_a_later_run_of_a_branch_is_compared_with_main_too(tmp_path: Path) -> None:
    path = tmp_path / "pr.db"
    cases = stored.keys(("timm",))
    with open_store(str(path)) as store:
        stored.add_night(store, 0, cases)
        for night in (1, 2):
            run = stored.make_run(night, cases)
            assert run.git is not None
            branch = replace(run, id=f"pr{night}", git=replace(run.git, branch="feature"))
            stored.add_run(store, branch, night)
    with open_store(str(path), read_only=True) as store:
        context = resolve(DataAccess(store), parse([("new", "pr2")]))
    assert context.base is not None
    assert context.base.branch == "main"


def test_cases_that_did_not_run_are_told_as_failures_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "short.db"
    cases = stored.keys(("timm",))
    with open_store(str(path)) as store:
        stored.add_night(store, 0, cases, until=3)
    left = len(cases) - 3
    levels = lines(page_of(path, "landing"))["headline-levels"]
    assert levels["did not run"] == left
    shown = page_of(path, "failures")
    told = [one for one in shown.sections if isinstance(one, Notice) and one.level == "fail"]
    assert told[0].text == f"{left} cases of {len(cases)} did not run."


def test_memory_that_grew_is_told_in_the_headline(long_database: Path) -> None:
    changes = lines(page_of(long_database, "landing"))["headline-changes"]
    assert changes["need more memory"] == long_history.PASSING
    asked = {"suite": "all", "outcome": "got-hungrier"}
    shown = _whole(page_of(long_database, "suite", **asked), "models")
    assert len(shown) == long_history.PASSING
