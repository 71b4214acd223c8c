"""Profiles: where time and memory went, taken here or read from another tool's file.

Holds: readers and writers of other tools' profiles (`formats`, found by entry points of the group
`torchstone.profile_formats`), and how call trees are built (`trees`). Touches: the files it is
given; `records`. What a file says is never trusted, unpickled or unmarshalled. torch may be
imported only in `probes`, which take profiles.
"""

from torchstone.profile.doors import (
    ENTRY_POINTS,
    find_format,
    known_formats,
    read_profile,
    write_profile,
)
from torchstone.profile.formats.base import ProfileFormat

__all__ = [
    "ENTRY_POINTS",
    "ProfileFormat",
    "find_format",
    "known_formats",
    "read_profile",
    "write_profile",
]
