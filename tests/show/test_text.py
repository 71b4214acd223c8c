"""Foreign text is tamed and fitted to the terminal's cells."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from torchstone.show.table import cells, clip, pad, sanitise, shorten, wrap

anything = st.text(st.characters(), max_size=60)


def test_controls_and_direction_marks_become_escapes() -> None:
    assert sanitise("a\x1b[31mb\n\t\x07\x9b\u202e\u200b") == (
        "a\\x1b[31mb\\n\\t\\x07\\x9b\\u202e\\u200b"
    )


def test_plain_and_foreign_letters_stay() -> None:
    assert sanitise("größe 漢字 µ") == "größe 漢字 µ"
    assert sanitise("größe 😀", ascii_only=True) == "gr\\xf6\\xdfe \\U0001f600"


@given(anything)
def test_nothing_without_a_picture_survives(text: str) -> None:
    shown = sanitise(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode("utf-8")
    assert sanitise(text, ascii_only=True).isascii()


def test_wide_and_combining_characters_count_their_cells() -> None:
    assert cells("漢字") == 4
    assert cells("e\u0301") == 1
    assert pad("漢", 4) == "漢  "
    assert pad("漢", 4, right=True) == "  漢"


def test_shorten_keeps_both_ends() -> None:
    assert shorten("BertForMaskedLM inductor", 12) == "BertFo…uctor"
    assert shorten("short", 12) == "short"


@given(anything, st.integers(1, 40))
def test_shorten_and_wrap_never_exceed_the_width(text: str, width: int) -> None:
    shown = sanitise(text)
    assert cells(shorten(shown, width)) <= width
    if width >= 4:
        assert all(cells(row) <= width for row in wrap(shown, width, rows=3))
        assert len(wrap(shown, width, rows=3)) <= 3


@given(st.lists(st.text("abcdefg", min_size=1, max_size=30), max_size=12), st.integers(4, 30))
def test_wrap_loses_no_letter(words: list[str], width: int) -> None:
    rows = wrap(" ".join(words), width, rows=10_000)
    assert "".join(rows).replace(" ", "") == "".join(words)


def test_a_cut_paragraph_says_so() -> None:
    assert wrap("one two three four", 5, rows=2) == ["one", "two…"]


def test_sentences_lose_their_end() -> None:
    assert clip("the worker died of SIGSEGV", 12) == "the worker…"
    assert clip("the worker died", 12, "...") == "the worke..."
    assert clip("short", 5) == "short"


@given(anything, st.integers(0, 30))
def test_what_is_clipped_fits(text: str, width: int) -> None:
    assert cells(clip(sanitise(text), width)) <= width
