"""Profiles: where time and memory went, taken here or read from another tool's file.

Holds: readers and writers of other tools' profiles (`formats`, found by entry points of the group
`torchstone.profile_formats`), how call trees are built (`trees`), probes that take profiles
(`probes`, group `torchstone.probes`), the processes in which they do it (`child`, `child_script`)
and what that costs (`cost`). Touches: the files it is given; `records`. What a file says is never
trusted, unpickled or unmarshalled. torch may be imported only in `probes`.

The package can be called: `torchstone.profile(...)` is the package itself and `context.profile` at
once, because both have the name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torchstone.profile.formats.base import FORMATS, find_format, read_profile, write_profile

__all__ = ["FORMATS", "find_format", "read_profile", "write_profile"]


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """What `torchstone.profile.context.profile` does."""
        from torchstone.profile.context import profile

        return profile(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
