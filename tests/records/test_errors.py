"""An error in one line, whatever it says."""

from __future__ import annotations

import pytest

from torchstone.records import first_line, in_a_line


class Unspeakable(Exception):
    """Cannot be written down."""

    def __str__(self) -> str:
        raise RuntimeError("again")


@pytest.mark.parametrize(
    ("error", "line", "whole"),
    [
        (ValueError("too long\nby far"), "too long", "ValueError: too long"),
        (AssertionError(), "", "AssertionError"),
        (RuntimeError("\n  late\n"), "late", "RuntimeError: late"),
        (Unspeakable(), "", "Unspeakable"),
    ],
)
def test_an_error_in_one_line(error: Exception, line: str, whole: str) -> None:
    assert first_line(error) == line
    assert in_a_line(error) == whole
