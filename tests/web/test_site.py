"""The static site: all of the newest run can be reached, and nothing of an older export stays."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.web import stored
from tests.web.conftest import reading
from torchstone.records import UsageError
from torchstone.show.cells import case_place
from torchstone.store import open_store
from torchstone.web.query import file_of
from torchstone.web.site import LIST, Site, SiteFolder, export_site
from torchstone.web.sources import DataAccess
from torchstone.web.views.parts import group_key, suite_place

CASES = [
    *stored.keys(["timm"]),
    *(replace(one, precision="bf16") for one in stored.keys(["timm"])[:2]),
    *stored.keys(["huggingface"])[:4],
]
"""Two modes, two precisions, two variants."""


@pytest.fixture
def one_run(tmp_path: Path) -> Path:
    path = tmp_path / "one.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, CASES)
    return path


def reachable(files: Mapping[str, bytes]) -> set[str]:
    """Pages that links lead to from the first one."""
    seen, waiting = {"index.html"}, ["index.html"]
    while waiting:
        text = files[waiting.pop()].decode()
        named = {html.unescape(one) for one in re.findall(r'href="([^"#]+\.html)"', text)}
        waiting += named - seen
        seen |= named
    return seen


def test_every_group_and_case_of_the_newest_run_is_reached_by_links(one_run: Path) -> None:
    with reading(one_run) as store:
        files = dict(Site(DataAccess(store)).files())
        (head,) = store.run_heads()
        groups = store.run_groups(head.id)
    assert len({(one.mode, one.precision) for one in groups}) == 3
    reached = reachable(files)
    assert {file_of(suite_place(group_key(one))) for one in groups} <= reached
    assert {file_of(case_place(one)) for one in CASES} <= reached
    for name in reached:  # and the files beside a page are those that it names
        for named in re.findall(r'href="(data/[^"]+)"', files[name].decode()):
            assert html.unescape(named) in files, (name, named)


def names(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


def test_what_the_export_before_wrote_and_this_one_does_not_is_gone(
    tmp_path: Path, one_run: Path
) -> None:
    site = tmp_path / "site"
    export_site(site, str(one_run))
    before = names(site)
    assert before == {*(site / LIST).read_text().split(), LIST}
    (site / "CNAME").write_text("lab.example")
    (site / "data" / "own.csv").write_text("mine")
    smaller = tmp_path / "smaller.db"
    with open_store(str(smaller)) as store:
        stored.add_night(store, 1, CASES[:1])
    lines = export_site(site, str(smaller), force=True)
    fresh = tmp_path / "fresh"
    export_site(fresh, str(smaller))
    assert names(site) == names(fresh) | {"CNAME", "data/own.csv"}
    removed = len(before - names(fresh))
    assert removed > 10
    assert f"{removed} files of the export before are removed" in lines


def test_an_export_that_was_stopped_is_known_to_the_next(tmp_path: Path) -> None:
    first = SiteFolder(tmp_path / "site")
    first.write("index.html", b"1")
    first.write("run-1.html", b"1")
    first.finish()
    stopped = SiteFolder(tmp_path / "site", force=True)
    stopped.write("run-2.html", b"2")
    stopped.close()
    last = SiteFolder(tmp_path / "site", force=True)
    last.write("index.html", b"3")
    assert last.finish() == 2
    assert names(tmp_path / "site") == {"index.html", LIST}


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/secret", "data/../../secret", "other/secret", ".hidden", "a/b/c", "data/",
     "..", "", "data\\secret", LIST],
)  # fmt: skip
def test_the_list_names_nothing_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("mine")
    site = tmp_path / "site"
    (site / "other").mkdir(parents=True)
    for own in ("other/secret", ".hidden"):
        (site / own).write_text("mine")
    (site / LIST).write_text(f"{name}\n")
    before = names(tmp_path)
    folder = SiteFolder(site, force=True)
    with pytest.raises(ValueError, match="not a name"):
        folder.write(name, b"x")
    assert folder.finish() == 0
    assert names(tmp_path) == before


def test_links_in_the_folder_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret.html"
    secret.write_text("mine")
    site = tmp_path / "site"
    site.mkdir()
    for name in ("index.html", "gone.html"):
        (site / name).symlink_to(secret)
    (site / LIST).write_text("index.html\ngone.html\n")
    folder = SiteFolder(site, force=True)
    folder.write("index.html", b"page")
    folder.finish()
    assert secret.read_text() == "mine"
    assert (site / "index.html").read_text() == "page"
    assert (site / "gone.html").is_symlink()  # nobody of us made it
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "data").mkdir(parents=True)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "data").symlink_to(elsewhere / "data")
    with pytest.raises(UsageError, match="is a link"):
        SiteFolder(tmp_path / "linked", force=True)


def site_of(path: Path, **settings: object) -> dict[str, bytes]:
    with reading(path) as store:
        source = DataAccess(store, running=frozenset())
        return dict(Site(source, **settings).files())  # type: ignore[arg-type]


def test_evidence_is_written_once_and_only_of_the_newest_run(database: Path) -> None:
    files = site_of(database)
    results = [name for name in files if name.startswith("result-")]
    assert results
    assert all("r05" in name for name in results), results
    (case,) = [name for name in files if name.startswith("case-huggingface-albert")][:1]
    assert b"chart-samples" not in files[case]
    assert not [name for name in files if name.endswith(".svg") and name.startswith("data/")]
    assert [name for name in files if name.startswith("data/case-") and "history.csv" in name]
    smaller = site_of(database, evidence=False)
    assert not [name for name in smaller if name.startswith(("result-", "profile-"))]


def test_histories_go_back_as_many_nights_as_asked_for(database: Path) -> None:
    def points(nights: int) -> int:
        files = site_of(database, nights=nights, evidence=False)
        beginning = "data/case-huggingface-albertformaskedlm-small-infer"
        name = next(one for one in files if one.startswith(beginning))
        return len(files[name].decode().splitlines()) - 1

    assert points(2) < points(30)
