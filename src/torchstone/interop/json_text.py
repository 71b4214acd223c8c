"""JSON from elsewhere: one value a line, one after the other, or one array of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from torchstone.interop.files import TextFile, bad

MAX_DEPTH = 16
"""Nesting of one record. The database's own records have 5 levels."""

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def json_values(file: TextFile) -> Iterator[tuple[int, Any]]:
    """Every value with the number of the line that it begins on; those of an array one by one."""
    text, line, counted = file.text, 1, 0
    at = _skip(text, 0)
    in_array = text.startswith("[", at)
    if in_array:
        at = _skip(text, at + 1)
    while at < len(text):
        line += text.count("\n", counted, at)
        counted = at
        if in_array and text.startswith("]", at):
            break
        value, at = _decode(file, line, at)
        yield line, value
        at = _skip(text, at)
        if in_array:
            at = _after_comma(file, line, at)
    if in_array:
        _check_end(file, line, at)


def _after_comma(file: TextFile, line: int, at: int) -> int:
    """The place of the next value of an array, or of its end."""
    if at == len(file.text) or file.text.startswith("]", at):
        return at
    if not file.text.startswith(",", at):
        raise bad(file.name, line, "the array does not go on after this value")
    at = _skip(file.text, at + 1)
    if file.text.startswith("]", at):
        raise bad(file.name, line, "there is a comma and no value behind it")
    return at


def _check_end(file: TextFile, line: int, at: int) -> None:
    if not file.text.startswith("]", at):
        raise bad(file.name, line, "the array is cut off")
    if _skip(file.text, at + 1) < len(file.text):
        raise bad(file.name, line, "there is more behind the end of the array")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _decode(file: TextFile, line: int, at: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(file.text, at)
    except RecursionError:
        raise bad(file.name, line, f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # not JSON, or an integer of thousands of digits
        said = getattr(error, "msg", "a number is too long")
        raise bad(file.name, line, f"this is not JSON ({said})") from None
    layer, depth = [value], 0
    while layer:  # layer by layer, so that depth costs no stack
        depth += 1
        if depth > MAX_DEPTH:
            raise bad(file.name, line, f"it is nested deeper than {MAX_DEPTH} levels")
        inner = (one.values() if isinstance(one, dict) else one for one in layer)
        layer = [
            one
            for values in inner
            if not isinstance(values, (str, int, float, type(None)))
            for one in values
        ]
    return value, end
