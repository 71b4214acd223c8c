"""The file that a benchmark fills: whole rows only, one writer, settings pinned."""

from __future__ import annotations

from pathlib import Path

import pytest
from aa_journal import Journal, number, read_rows


def test_rows_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    with Journal(path) as journal:
        journal.append({"kind": "trial", "ratio": 1.5})
    assert list(read_rows([path])) == [{"kind": "trial", "ratio": 1.5}]


def test_a_torn_line_is_cut_and_the_next_row_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"kind":"trial","trial":0}\n{"kind":"trial","tri')
    assert [row["trial"] for row in read_rows([path])] == [0]
    with Journal(path) as journal:
        journal.append({"kind": "trial", "trial": 1})
    assert [row["trial"] for row in read_rows([path])] == [0, 1]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Journal(path), pytest.raises(SystemExit, match="another run"):
        Journal(path)
    with Journal(path):
        pass


def test_settings_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Journal(path) as journal:
        assert journal.pinned("size", lambda: {"units": 100}) == {"units": 100}
    with Journal(path) as journal:
        assert journal.pinned("size", lambda: {"units": 900}) == {"units": 100}
        journal.must_match("size", {"units": 100})
        with pytest.raises(SystemExit, match="another --out"):
            journal.must_match("size", {"units": 900})


def test_numbers_that_json_cannot_hold() -> None:
    assert [number(x) for x in (None, float("inf"), float("nan"), 2.0)] == [None, None, None, 2.0]
