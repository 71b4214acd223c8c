"""Words that had a private meaning here do not come back; the field's own words stand in docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.structure.places import ROOT, sources

GONE = {
    "anew": "again",
    "at hand": "available",
    "babbled": "broke the protocol",
    "broke off": "was interrupted",
    "broken off": "interrupted",
    "courtesy": "warm-up gate",
    "dearest": "slowest",
    "desk": "app state",
    "for want of": "for lack of",
    "front door": "entry point",
    "judge": "evaluate",
    "judgement": "evaluation",
    "keeper": "recorder",
    "leave it away": "remove this option",
    "parcel": "encoded result",
    "roof": "peak",
    "second look": "remeasurement",
    "the house": "Torchstone",
    "thinning": "pruning",
    "trouble": "problem",
    "unkept": "not stored",
    "upkeep": "maintenance",
    "yardstick": "dispatch reference",
    "zoo": "op microbenchmarks",
}
"""Each with what to say instead. `roofline` stays."""
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def words_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").lower()
    return [word for word in GONE if re.search(rf"\b{word}s?\b", text)]


def in_strings(path: Path) -> list[str]:
    """In comments, docstrings and messages, not in the names of other people's things."""
    text = path.read_text(encoding="utf-8")
    prose = re.findall(r'"""(?s:.*?)"""|#[^\n]*|f?"[^"\n]* [^"\n]*"', text)
    lowered = "\n".join(prose).lower()
    return [word for word in GONE if re.search(rf"\b{word}s?\b", lowered)]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != "decisions.md"], ids=lambda page: page.name
)
def test_no_page_speaks_the_dialect(page: Path) -> None:
    assert words_of(page) == []


def test_no_source_speaks_the_dialect() -> None:
    found = {path.name: words for path in sources() if (words := in_strings(path))}
    assert found == {}


def test_a_word_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It is made anew under the roofs, by the roofline.")
    assert words_of(page) == ["anew", "roof"]
    source = tmp_path / "one.py"
    source.write_text('"""Say it\nanew."""\n\nroof = 1\n')
    assert in_strings(source) == ["anew"]
