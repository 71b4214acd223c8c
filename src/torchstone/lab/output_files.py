"""Files that people ask for: whether one can be written, asked early, and a sentence if not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from torchstone.records import UsageError

ANOTHER = "Name another file."


def writable(path: str) -> bool:
    """Whether the file that is there may be written, or else a new one in its folder.

    By trying it, because rights do not tell all: root has them in /proc too. Nothing is changed.
    Of a pipe only the rights are asked: whoever reads it would take the trial for the end.
    """
    new = not os.path.lexists(path)
    if not new and not os.path.isfile(path):
        return not os.path.isdir(path) and os.access(path, os.W_OK)
    if not new and not os.access(path, os.W_OK):
        return False
    try:
        with open(path, "ab"):
            pass
        if new:
            os.unlink(path)
    except OSError:
        return False
    return True


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
