"""Stylesheets and scripts: our own, those of the charts, and those of the profile views."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from torchstone.show.bundle import asset, bundle

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


@dataclass(frozen=True)
class Asset:
    """A file that pages load."""

    name: str
    content: bytes

    @property
    def kind(self) -> str:
        """Its media type."""
        return KINDS[self.name.rpartition(".")[2]]


@lru_cache(maxsize=1)
def all_assets() -> dict[str, Asset]:
    """Every asset by name, read once."""
    texts = {name: _own(name) for name in OWN}
    texts["charts.css"] = asset("charts", "charts.css")
    texts["charts.js"] = bundle("charts", "charts", "enliven") + FRESH_CHARTS
    texts["profile.js"] = bundle("profile", "app", "start")
    texts["profile.css"] = asset("profile", "style.css")
    return {name: Asset(name, text.encode("utf-8")) for name, text in texts.items()}


def find(name: str) -> Asset | None:
    """The asset of that name."""
    return all_assets().get(name)


@lru_cache(maxsize=1)
def version() -> str:
    """Changes when the content of any asset does."""
    digest = hashlib.sha256()
    for name, one in sorted(all_assets().items()):
        digest.update(name.encode() + b"\0" + one.content)
    return digest.hexdigest()[:12]


def _own(name: str) -> str:
    place = resources.files("torchstone.web").joinpath("assets").joinpath(name)
    return place.read_text(encoding="utf-8")
