"""Small reads from the kernel's text files that never raise."""

from __future__ import annotations

import os

_CHUNK = 65536


def read_text(path: str) -> str | None:
    """The file's text, or None if it is missing, unreadable or vanished while being read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def read_int(path: str) -> int | None:
    """The one integer that the file holds, or None."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def read_field(path: str, name: str) -> int | None:
    """The integer after `name` on the line that starts with it, as in `throttled_time 12`."""
    for line in (read_text(path) or "").splitlines():
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def list_numbers(folder: str) -> list[int]:
    """The entries of a folder whose names are numbers: processes in /proc, threads in a task."""
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
