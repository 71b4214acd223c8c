"""Formats of profiles by name, through entry points; and by what a file holds."""

from __future__ import annotations

import gzip
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import cast

from torchstone.profile.formats.base import ProfileFormat, head_of, shown
from torchstone.records import Profile, UsageError
from torchstone.records.plugins import Registry, did_you_mean

FORMATS = Registry(
    "torchstone.profile_formats",
    {
        "chrome": "torchstone.profile.formats.chrome:CHROME",
        "folded": "torchstone.profile.formats.folded:FOLDED",
        "pstats": "torchstone.profile.formats.pstats_file:PSTATS",
        "speedscope": "torchstone.profile.formats.speedscope:SPEEDSCOPE",
        "torchstone": "torchstone.profile.formats.own:OWN",
    },
)
_GZIP_LEVEL = 6


@cache
def known_formats() -> dict[str, metadata.EntryPoint]:
    """Installed formats by name; nothing is imported."""
    return FORMATS.by_name()


def find_format(name: str) -> ProfileFormat:
    """The format of that name; a `UsageError` that names the nearest ones otherwise."""
    known = known_formats()
    if name in known:
        return cast("ProfileFormat", known[name].load())
    names = ", ".join(sorted(known))
    raise UsageError(
        f"There is no profile format {name!r}.", f"{did_you_mean(name, known)}Formats: {names}."
    )


def recognise(path: Path) -> ProfileFormat:
    """The format that takes the file for its own: by content, then by the ending of its name."""
    head = head_of(path)
    formats = [find_format(name) for name in sorted(known_formats())]
    fitting = [one for one in formats if one.accepts(head, path)]
    name = path.name.removesuffix(".gz")
    if len(fitting) != 1:
        named = [one for one in fitting or formats if name.endswith(one.endings)]
        fitting = named[:1] or fitting
    if len(fitting) == 1:
        return fitting[0]
    names = [one.name for one in fitting or formats]
    raise UsageError(
        f"{shown(path)} may be any of {', '.join(names)}."
        if fitting
        else f"{shown(path)} is not a profile of a kind that is known here.",
        f"Say what it is; formats: {', '.join(names)}.",
    )


def read_profile(path: str | Path, format: str | None = None) -> Profile:
    """The profile that a file holds. Its kind is told by its content where `format` is None."""
    path = Path(path)
    chosen = find_format(format) if format else recognise(path)
    return chosen.read(path)


def write_profile(profile: Profile, path: str | Path, format: str) -> tuple[str, ...]:
    """Write it to a file (compressed if the name ends in `.gz`); gives what the file leaves out,
    a sentence each."""
    path = Path(path)
    chosen = find_format(format)
    data = chosen.write(profile)
    if path.name.endswith(".gz"):
        data = gzip.compress(data, _GZIP_LEVEL, mtime=0)
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown(path)} cannot be written: {reason}.") from None
    return chosen.remarks(profile)
