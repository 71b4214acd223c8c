"""Files from elsewhere, read within bounds. Nothing in them is trusted."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchstone.records import UsageError

MAX_FILES = 2_000
"""A nightly of the dashboard is about 100 files a device."""
MAX_FILE_BYTES = 64 * 2**20
MAX_ALL_BYTES = 256 * 2**20
MAX_ROWS = 500_000
"""Rows or records of all files together: 250 models, 20 configurations, 20 metrics, five times."""
MAX_COLUMNS = 1_000
MAX_CELL = 65_536
"""Characters in a cell, or in what a JSON record says beside its metric."""
MAX_NAME = 500
"""Characters in a name that becomes part of a case's key."""


@dataclass(frozen=True)
class TextFile:
    """A file that was read. `chosen`: named by the user, not found in a folder."""

    name: str
    text: str
    chosen: bool = True


def bad(file: str, line: int, what: str) -> UsageError:
    """The error for something wrong at a line of a file."""
    return UsageError(
        f"{file}, line {line}: {what}.", "Correct the file, or leave it out of the import."
    )


def read_files(paths: Sequence[Path], endings: tuple[str, ...]) -> Iterator[TextFile]:
    """The text of every file, and of the files with such an ending in every folder, in order."""
    found = [one for path in paths for one in _expand(Path(path), endings)]
    if not found:
        raise UsageError(
            f"There is no file to import; looked for {' and '.join(endings)}.",
            "Name the files, or a folder that holds them.",
        )
    if len(found) > MAX_FILES:
        raise UsageError(
            f"These are {len(found)} files; at most {MAX_FILES} are imported at once.",
            "Import fewer at a time.",
        )
    left = MAX_ALL_BYTES
    for path, chosen in found:
        data = _read(path)
        left -= len(data)
        if left < 0:
            raise UsageError(
                f"The files hold more than {MAX_ALL_BYTES // 2**20} MiB.", "Import fewer at a time."
            )
        yield TextFile(printable(path.name), _decode(path.name, data), chosen)


def _expand(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[Path, bool]]:
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, before Python 3.13
        raise UsageError(f"{printable(str(path))} cannot be read: {error}.") from None
    if not is_folder:
        yield path, True
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name.endswith(endings):
                yield Path(folder, name), False


def _read(path: Path) -> bytes:
    shown = printable(path.name)
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{shown} is not a regular file.", "Name a file or a folder.")
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown} cannot be read: {reason}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(
            f"{shown} is larger than {MAX_FILE_BYTES // 2**20} MiB.", "It is too large to import."
        )
    return data


def _decode(name: str, data: bytes) -> str:
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise bad(printable(name), line, "there is a NUL; this is not a text file in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise bad(printable(name), line, "this is not UTF-8") from None


def printable(text: str) -> str:
    """A file's name as text that can be stored: bytes that are no UTF-8 become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_text(text: str) -> bool:
    """Whether it can be stored: JSON can hold halves of characters, which are none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def check_name(text: str, what: str, file: str, line: int) -> str:
    """A name as it is, if it can be part of a key."""
    if not text.strip():
        raise bad(file, line, f"there is no {what}")
    if len(text) > MAX_NAME or not is_text(text):
        raise bad(file, line, f"the {what} is longer than {MAX_NAME} characters, or no text")
    return text


def number(text: str | None) -> float | None:
    """The number that a cell holds, NaN and infinity too; None where it holds none."""
    if text is None or "_" in text:  # Python takes 1_000 for a number, nobody else does
        return None
    try:
        return float(text)
    except ValueError:
        return None


def positive(text: str | None) -> float | None:
    """The number that a cell holds, where it is above zero and finite."""
    value = number(text)
    return value if value is not None and 0.0 < value < math.inf else None


# JSON from elsewhere: one value a line, one after the other, or one array of them.


MAX_DEPTH = 16
"""Nesting of one record. The database's own records have 5 levels."""

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def json_values(file: TextFile) -> Iterator[tuple[int, Any]]:
    """Every value with the number of the line that it begins on; those of an array one by one."""
    text, line, counted = file.text, 1, 0
    at = _skip(text, 0)
    in_array = text.startswith("[", at)
    at = _skip(text, at + in_array)
    comma: bool | None = None  # behind the value before this one
    while at < len(text) and not (in_array and text.startswith("]", at)):
        if in_array and comma is False:
            raise bad(file.name, line, "the array does not go on after this value")
        line += text.count("\n", counted, at)
        counted = at
        value, at = _decode_json(file, line, at)
        yield line, value
        at = _skip(text, at)
        comma = in_array and text.startswith(",", at)
        at = _skip(text, at + comma)
    if in_array and at == len(text):
        raise bad(file.name, line, "the array is cut off")
    if comma:
        raise bad(file.name, line, "there is a comma and no value behind it")
    if in_array and _skip(text, at + 1) < len(text):
        raise bad(file.name, line, "there is more behind the end of the array")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _decode_json(file: TextFile, line: int, at: int) -> tuple[Any, int]:
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
