"""Files that people ask for: whether one can be written, asked early, and a sentence if not."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torchstone.records import TorchstoneError

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


class NotWritten(TorchstoneError):
    """What was made is there, but not in the file that it was wanted in: exit code 1."""


@contextmanager
def writing(path: str) -> Iterator[None]:
    """What could not be foreseen, such as a full disk, is said in a sentence as well."""
    try:
        yield
    except OSError as error:
        raise not_written(path, error) from None


def not_written(path: str, error: OSError) -> NotWritten:
    """The real cause, and what helps against it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = error.strerror or type(error).__name__
    return NotWritten(
        f"{path} cannot be written: {why}.",
        f"Free some space, or {ANOTHER.lower()}" if full else ANOTHER,
    )


def write_file(path: str, text: str) -> None:
    """The text in a file, as it is: no line end is made another.

    Written aside and renamed, so that there is never a part of it under the name; only what is no
    file (a pipe, a device) gets it directly.
    """
    with writing(path):
        place = os.path.realpath(path)
        if os.path.lexists(place) and not os.path.isfile(place):
            with open(place, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            return
        _replace(place, text)


def _replace(place: str, text: str) -> None:
    folder, name = os.path.split(place)
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{name[:60]}.", suffix=".part", dir=folder)
    except PermissionError:  # a file that may be written in a folder that may not
        with open(place, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            os.fchmod(descriptor, _mode(place))
        os.replace(part, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _mode(place: str) -> int:
    """The rights of the file that is there, or those that a new one would have."""
    with suppress(OSError):
        return stat.S_IMODE(os.stat(place).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
