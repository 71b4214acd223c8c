"""`torchstone list`: a line a result, failures visible, strangers' labels harmless."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from torchstone.show import listing
from torchstone.show.table import cells


@dataclass(frozen=True)
class Stored:
    id: str = "r7k2m9"
    created: str = "2026-11-15T20:30:00Z"
    kind: str = "bench"
    label: str = "two_layer"
    arms: tuple[str, ...] = ("eager", "inductor")
    outcomes: tuple[str, ...] = ("ok", "ok")
    headline: str = "inductor: 1.52x faster"


ROWS = [
    Stored(),
    Stored(id="r0", kind="timeit", outcomes=("ok", "crash", "crash", "wrong_answer")),
    Stored(id="r1", label="\x1b[2J" + "x" * 300, headline="long " * 60),
]


def test_a_line_says_it_all() -> None:
    text = listing(ROWS[:2], False, 100)
    heading, first, second = text.splitlines()
    assert heading.split() == ["id", "when", "kind", "arms", "outcome", "label", "result"]
    assert first.split()[:6] == ["r7k2m9", "2026-11-15", "20:30", "bench", "2", "ok"]
    assert first.endswith("inductor: 1.52x faster")
    assert "2 crash, wrong answer" in second


def test_a_long_label_gives_way_so_that_a_row_is_a_line() -> None:
    labelled = [
        Stored(id="01jx8k2m9abc", label="a label of more than a few words", outcomes=("ok",))
    ]
    assert len(listing(labelled, False, 100).splitlines()) == 2
    assert "a label o" in listing(labelled, False, 100)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits_and_is_plain(width: int) -> None:
    text = listing(ROWS, False, width)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert "\\x1b" in text
    assert all(text.count(row.id) >= 1 for row in ROWS)


def test_colour_marks_failures() -> None:
    assert "\x1b[1;31m2 crash, wrong answer" in listing(ROWS, True, 200)


def test_an_empty_store_says_how_to_fill_it() -> None:
    assert "torchstone bench TARGET" in listing([], False, 80)
