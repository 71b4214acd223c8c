"""The shape of a profile format: another tool's profile, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torchstone.records import Profile


class ProfileFormat(Protocol):
    """One kind of file. Found by entry point; the entry point's name is the format's name."""

    @property
    def name(self) -> str:
        """How it is named on the command line: `speedscope`."""

    @property
    def endings(self) -> tuple[str, ...]:
        """How names of such files end, without `.gz`; the first is what we give to our own."""

    def accepts(self, head: bytes, path: Path, /) -> bool:
        """Whether a file that begins like this (decompressed) is of this kind."""

    def read(self, path: Path, /) -> Profile:
        """The profile in the file.

        The file is not to be trusted. Whatever is wrong with it is a `UsageError`; no other
        exception leaves here. What can be mended is mended and said in `Profile.problems`.
        """

    def write(self, profile: Profile, /) -> bytes:
        """The profile as such a file; a `UsageError` where it holds nothing that could be said."""

    def remarks(self, profile: Profile, /) -> tuple[str, ...]:
        """What such a file leaves out of this profile, a sentence each."""
