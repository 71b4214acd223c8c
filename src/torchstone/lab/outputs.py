"""Files that people ask for: whether one can be written, asked early, and a sentence if not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from torchstone.records import UsageError

ANOTHER = "Name another file."


def writable(path: str) -> bool:
    """Whether the file that is there may be written, or else a new one in its folder."""
    if os.path.isdir(path):
        return False
    folder = os.path.dirname(os.path.abspath(path))
    return os.access(path if os.path.exists(path) else folder, os.W_OK)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """What could not be foreseen, such as a full disk, is said in a sentence as well."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UsageError(f"{path} cannot be written: {why}.", ANOTHER) from None


def write_file(path: str, text: str) -> None:
    """The text in a file, as it is: no line end is made another."""
    with writing(path), open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
