"""`torchstone export --format site`: the same pages as files, for a web host or from disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torchstone.records import UsageError
from torchstone.show.profile_html import profile_html
from torchstone.store import alive, open_store
from torchstone.web import files
from torchstone.web.documents import page_data
from torchstone.web.drawing import draw
from torchstone.web.links import SiteLinks, data_name, file_of
from torchstone.web.page import Notice, Page, Place, charts_of, tables_of
from torchstone.web.query import ALL, BadQuery, NotFound, Query, parse, with_defaults
from torchstone.web.registry import PAGES
from torchstone.web.render import NAVIGATION, House, html
from torchstone.web.security import POLICY
from torchstone.web.site_folder import SiteFolder
from torchstone.web.sources import Source
from torchstone.web.tables import csv_text, to_json

MOST_PAGES = 5000
"""Pages of one site; where it would have more, the last ones are named and not linked."""
STANDING = frozenset(
    {"suite", "model", "scale", "mode", "precision", "variant", "device", "threads", "allocator"}
)
"""What a written page may be about: not a chosen range, base or run, of which there is no end."""
WHOLE = frozenset({"landing", "suite"})
"""Pages that show one mode and precision unless they are asked for all."""
VIEW = "profile-view"
SITE_POLICY = "; ".join(part for part in POLICY.split("; ") if not part.startswith("frame-"))
"""A page's own policy cannot speak of frames; the rest holds from disk too."""


class Site:
    """Pages found by following links from the navigation, each once."""

    def __init__(self, source: Source, most: int = MOST_PAGES) -> None:
        self._source = source
        self._most = most
        self._known: set[Place] = set()
        self._waiting: deque[Place] = deque()
        self.left_out: set[Place] = set()
        self._links = SiteLinks(self.wants)

    def wants(self, place: Place) -> bool:
        """Whether a page is written; asking for it is what has it written."""
        if place in self._known:
            return True
        if not (place.page in PAGES or place.page == VIEW):
            return False
        if any(name not in STANDING for name, _ in place.params):
            return False
        if len(self._known) >= self._most:
            self.left_out.add(place)
            return False
        self._known.add(place)
        self._waiting.append(place)
        return True

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Every file by its name in the folder."""
        for one in files.all_assets().values():
            yield f"assets/{one.name}", one.content
        for name, _ in NAVIGATION:
            self.wants(Place(name))
        with self._source.store.snapshot():  # all pages are of one state
            while self._waiting:
                yield from self._page(self._waiting.popleft())

    def _page(self, place: Place) -> Iterator[tuple[str, bytes]]:
        if place.page == VIEW:
            yield self._view(place)
            return
        try:
            query = _whole(place.page, parse(place.params))
            page = PAGES[place.page].view(self._source, query, place.ident)
            page = replace(page, params=place.params)  # what its files are named by
        except (NotFound, BadQuery, UsageError) as error:
            sorry = (Notice(error.message, "warn", error.remedy),)
            page = Page(place.page, "Not found", sorry, place.ident, status=404)
        house = House(self._source.name, policy=SITE_POLICY)
        yield file_of(place), html(page, self._links, house).encode()
        if page.status == 200:
            yield from self._data(place, page)

    def _view(self, place: Place) -> tuple[str, bytes]:
        found = self._source.store.load_profile(place.ident)
        return file_of(place), profile_html([found]).encode()

    def _data(self, place: Place, page: Page) -> Iterator[tuple[str, bytes]]:
        yield (
            f"data/{data_name(place, 'page', 'json')}",
            to_json(page_data(page, whole=True)).encode(),
        )
        for name, table in tables_of(page).items():
            if table.rows:
                yield f"data/{data_name(place, name, 'csv')}", csv_text(table).encode()
        for name, chart in charts_of(page).items():
            drawn = draw(chart, self._links, alone=True)
            if drawn:
                yield f"data/{data_name(place, name, 'svg')}", drawn.encode()


def _whole(page: str, query: Query) -> Query:
    """With every mode and precision where the server would choose one and offer the others: a
    page without a server has no droplists, and what no page links is not written."""
    return with_defaults(query, mode=ALL, precision=ALL) if page in WHOLE else query


def export_site(out: Path, db: str | None, force: bool = False) -> Sequence[str]:
    """Write the site into a folder; lines for the terminal."""
    with open_store(db, create=False, read_only=True) as store:
        store.run_heads(limit=1)  # a database of an older program has no history: said now
        # Asked once: a run may end while pages are written, and they should agree on its state.
        site = Site(Source(store, running=alive.running_ids(store.path)))
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
        folder = SiteFolder(out, force)
        try:
            for name, content in site.files():
                folder.write(name, content)
                written += len(content)
                pages += name.endswith(".html")
            return pages, written, folder.finish()
        finally:
            folder.close()
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from None
