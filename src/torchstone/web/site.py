"""`torchstone export --format site`: the same pages as files, for a web host or from disk."""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import TextIO

from torchstone.records import UsageError
from torchstone.show.bundle import asset, bundle
from torchstone.show.page import Link, Notice, Page, tables_of
from torchstone.show.profile_html import profile_html
from torchstone.store import open_store
from torchstone.web.context import resolve
from torchstone.web.documents import page_data
from torchstone.web.query import (
    DAY_S,
    BadQuery,
    NotFound,
    Query,
    SiteLinks,
    data_name,
    file_of,
    parse,
    with_defaults,
)
from torchstone.web.registry import PAGES
from torchstone.web.render import NAVIGATION, SiteInfo, html
from torchstone.web.security import POLICY
from torchstone.web.sources import DataAccess
from torchstone.web.tables import csv_text, to_json

# The folder that a site is written into: it knows what the export before left there.
#
# Pages of an earlier export stay readable for whoever knows their address, so what is not written
# again is removed. Only files that the list in the folder names are touched, and only in the places
# where a site has any: somebody's own files stay, and no name or link leads out of the folder.


LIST = "torchstone-site.txt"
"""In the folder: the name of every file that an export wrote, one a line."""
INSIDE = ("", "assets", "data")
"""Where files of a site are."""
LONGEST_LIST = 1 << 26
"""Bytes of a list that one of our exports could have written."""
_NAME = re.compile(r"(?:(?P<folder>[a-z]+)/)?[A-Za-z0-9_][A-Za-z0-9._-]*")


class SiteFolder:
    """A folder that is being written to, with `write` and at the end `finish`.

    A name is on the list before its file is there, and the names of the export before stay on it
    until `finish`: after an export that was stopped, the next one still knows of every file.
    """

    def __init__(self, out: Path, force: bool = False) -> None:
        self.out = out
        self._prepare(force)
        self._before = _listed(out / LIST)
        self._written: dict[str, None] = {}
        self._replace_list(self._before)
        self._list: TextIO = (out / LIST).open("a", encoding="utf-8")

    def _prepare(self, force: bool) -> None:
        out = self.out
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is not a folder.", "Name a folder for the site.")
        if out.exists() and any(out.iterdir()) and not force:
            raise UsageError(f"{out} is not empty.", "Choose another folder, or add --force.")
        for name in INSIDE[1:]:
            if (out / name).is_symlink():
                raise UsageError(
                    f"{out / name} is a link, and what is written there would be elsewhere.",
                    "Remove it, or choose another folder.",
                )
        for name in INSIDE:
            (out / name).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Write one file of the site."""
        if not _is_ours(name):
            raise ValueError(f"{name!r} is not a name for a file of a site")
        if name not in self._written:
            self._written[name] = None
            self._list.write(f"{name}\n")
            self._list.flush()
        path = self.out / name
        if path.is_symlink():  # it would lead elsewhere
            path.unlink()
        path.write_bytes(content)

    def finish(self) -> int:
        """Remove what the export before wrote and this one did not; how many files."""
        removed = 0
        for name in self._before:
            path = self.out / name
            if name in self._written or path.is_symlink() or not path.is_file():
                continue
            path.unlink()
            removed += 1
        self.close()
        self._replace_list(tuple(self._written))
        return removed

    def close(self) -> None:
        """Let go of the list; after an export that failed, too."""
        self._list.close()

    def _replace_list(self, names: tuple[str, ...]) -> None:
        """All at once, and a link by that name is replaced, not followed."""
        part = self.out / f"{LIST}.part"
        part.unlink(missing_ok=True)
        part.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        os.replace(part, self.out / LIST)


def _listed(path: Path) -> tuple[str, ...]:
    """The names on the list that can be of ours; none where there is no list."""
    try:
        if path.is_symlink() or path.stat().st_size > LONGEST_LIST:
            return ()
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(dict.fromkeys(name for name in text.splitlines() if _is_ours(name)))


def _is_ours(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and (found["folder"] or "") in INSIDE and name != LIST


OF_THIS_MACHINE = ("monitors", "monitor")
"""Pages of what is not in the database: they are not given away with it."""
MOST_PAGES = 5000
"""Pages of one site; where it would have more, the last ones are named and not linked."""
STANDING = frozenset(
    {"suite", "model", "scale", "mode", "precision", "variant", "device", "threads", "allocator"}
)
"""What a written page may be about: not a chosen range, base or run, of which there is no end."""
NIGHTS = 14
"""How far back histories go: a page without a server has no droplist to ask for more."""
OVER_TIME = frozenset({"landing", "suite", "case"})
EVIDENCE = frozenset({"result", "profile", "profile-view"})
ONCE: Mapping[str, tuple[str, ...]] = {
    "suite": ("models",),
    "case": ("history",),
    "run": ("groups", "failures"),
    **dict.fromkeys((*EVIDENCE, "change", "series"), ()),
}
"""Tables that are files too, of pages of which there are many; of all others, every table and the
page as JSON."""
VIEW = "profile-view"
SITE_POLICY = "; ".join(part for part in POLICY.split("; ") if not part.startswith("frame-"))
"""A page's own policy cannot speak of frames; the rest holds from disk too."""


class Site:
    """Pages found by following links from the navigation, each once."""

    def __init__(
        self,
        source: DataAccess,
        most: int = MOST_PAGES,
        nights: int = NIGHTS,
        evidence: bool = True,
    ) -> None:
        self._source = source
        self._most = most
        self._nights = nights
        self._evidence = evidence
        self._known: set[Link] = set()
        self._waiting: deque[Link] = deque()
        self.left_out: set[Link] = set()
        self._links = SiteLinks(self.wants, _is_file)

    def wants(self, place: Link) -> bool:
        """Whether a page is written; asking for it is what has it written."""
        if place in self._known:
            return True
        if not (place.page in PAGES or place.page == VIEW) or place.page in OF_THIS_MACHINE:
            return False
        if any(name not in STANDING for name, _ in place.params) or self._is_hidden(place):
            return False
        if len(self._known) >= self._most:
            self.left_out.add(place)
            return False
        self._known.add(place)
        self._waiting.append(place)
        return True

    def _is_hidden(self, place: Link) -> bool:
        """Evidence that is not wanted, and that of older nights, of which there is no end; changes
        of level that nobody need look into any more."""
        if place.page == "change":
            return place.ident not in self._open
        if place.page not in EVIDENCE:
            return False
        return not self._evidence or (place.page == "result" and place.ident not in self._newest)

    @cached_property
    def _open(self) -> frozenset[str]:
        found = self._source.changes()
        states = ("open", "confirmed", "acknowledged")
        changes = [one for state in states for one in found[0].of_state(state)] if found else []
        return frozenset(one.id for one in changes)

    @cached_property
    def _newest(self) -> frozenset[str]:
        """The results of the run that the overview shows."""
        head = resolve(self._source, Query()).new
        cases = self._source.cases(head) if head else ()
        return frozenset(case.result_id for case in cases)

    @cached_property
    def _since(self) -> str:
        """The first night that histories show; empty where nothing is dated."""
        newest = next(iter(self._source.heads(limit=1)), None)
        if newest is None or newest.created_s is None:
            return ""
        first = datetime.fromtimestamp(newest.created_s - self._nights * DAY_S, timezone.utc)
        return f"{first:%Y-%m-%dT%H:%M:%SZ}"

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Every file by its name in the folder."""
        for name, content in all_assets().items():
            yield f"assets/{name}", content
        for name, _ in NAVIGATION:
            self.wants(Link(name))
        with self._source.store.snapshot():  # all pages are of one state
            while self._waiting:
                yield from self._page(self._waiting.popleft())

    def _page(self, place: Link) -> Iterator[tuple[str, bytes]]:
        if place.page == VIEW:
            found = self._source.store.load_profile(place.ident)
            yield file_of(place), profile_html([found]).encode()
            return
        try:
            query = parse(place.params)
            if place.page in OVER_TIME:
                query = with_defaults(query, since=self._since, granularity="run")
            page = PAGES[place.page].view(self._source, query, place.ident)
            page = replace(page, params=place.params)  # what its files are named by
        except (NotFound, BadQuery, UsageError) as error:
            sorry = (Notice(error.message, "warn", error.remedy),)
            page = Page(place.page, "Not found", sorry, place.ident, status=404)
        site_info = SiteInfo(self._source.name, policy=SITE_POLICY)
        yield file_of(place), html(page, self._links, site_info).encode()
        if page.status == 200:
            yield from self._data(place, page)

    def _data(self, place: Link, page: Page) -> Iterator[tuple[str, bytes]]:
        if _is_file(place, "page"):
            document = to_json(page_data(page, whole=True))
            yield f"data/{data_name(place, 'page', 'json')}", document.encode()
        for name, table in tables_of(page).items():
            if (table.rows or table.whole) and _is_file(place, name):
                yield f"data/{data_name(place, name, 'csv')}", csv_text(table).encode()


def _is_file(place: Link, name: str) -> bool:
    """Whether a table of a page, or the `page`, is a file beside it."""
    return name in ONCE.get(place.page, (name,))


def export_site(
    out: Path,
    db: str | None,
    force: bool = False,
    nights: int = NIGHTS,
    evidence: bool = True,
    repository: str = "",
) -> Sequence[str]:
    """Write the site into a folder; lines for the terminal."""
    with open_store(db, create=False, read_only=True) as store:
        store.run_heads(limit=1)  # a database of an older program has no history: said now
        # Asked once: a run may end while pages are written, and they should agree on its state.
        source = DataAccess(store, running=store.running_ids(), repository=repository)
        site = Site(source, nights=nights, evidence=evidence)
        pages, written, removed = _write(site, out, force)
    lines = [f"{out / 'index.html'}: {pages} pages, {written / 1e6:.1f} MB"]
    if removed:
        lines.append(f"{removed} files of the export before are removed")
    if site.left_out:
        lines.append(f"note: {len(site.left_out)} further pages are left out")
    return lines


def _write(site: Site, out: Path, force: bool) -> tuple[int, int, int]:
    """Pages and bytes that were written, and how many files of an earlier export were removed."""
    pages = written = 0
    try:
        with closing(SiteFolder(out, force)) as folder:
            for name, content in site.files():
                folder.write(name, content)
                written += len(content)
                pages += name.endswith(".html")
            return pages, written, folder.finish()
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from None


# Stylesheets and scripts: our own, those of the charts, and those of the profile views.


KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
OWN = (
    "style.css",
    "profile_page.css",
    "theme.js",
    "controls.js",
    "tables.js",
    "live.js",
    "icon.svg",
)
FRESH_CHARTS = 'document.addEventListener("torchstone:fresh", () => module_charts.enliven());\n'
"""Charts that come in while a page is open answer too."""


@lru_cache(maxsize=1)
def all_assets() -> dict[str, bytes]:
    """Every asset by name, read once."""
    own = resources.files("torchstone.web").joinpath("assets")
    texts = {name: own.joinpath(name).read_text(encoding="utf-8") for name in OWN}
    texts["charts.css"] = asset("charts", "charts.css")
    texts["charts.js"] = bundle("charts", "charts", "enliven") + FRESH_CHARTS
    texts["profile.js"] = bundle("profile", "app", "start")
    texts["profile.css"] = asset("profile", "style.css")
    return {name: text.encode("utf-8") for name, text in texts.items()}


@lru_cache(maxsize=1)
def version() -> str:
    """Changes when the content of any asset does."""
    digest = hashlib.sha256()
    for name, content in sorted(all_assets().items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()[:12]
