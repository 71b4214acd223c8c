"""Our own format: the record itself, whole, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchstone.profile.formats.files import MAX_DOCUMENT_BYTES, Input, bad, first_byte
from torchstone.profile.formats.frames import clean
from torchstone.profile.formats.promises import BrokenPromise, check_profile
from torchstone.records import PROFILE_SCHEMA, Profile, RecordError, from_data, to_data

MARK = "torchstone-profile"


class OwnFormat:
    """See the module. Nothing is left out."""

    name = "torchstone"
    endings = (".profile.json",)

    def accepts(self, head: bytes, path: Path) -> bool:
        """An object that begins with our mark."""
        return first_byte(head) == b"{" and MARK.encode() in head[:200]

    def read(self, path: Path) -> Profile:
        """The record, if it is one and keeps its promises."""
        file = Input(path, MAX_DOCUMENT_BYTES)
        data = file.json()
        record = data.get("profile") if isinstance(data, dict) else None
        if not isinstance(record, dict) or data.get("format") != MARK:
            raise bad(file.name, "this is not a profile that Torchstone wrote")
        schema = record.get("schema")
        if type(schema) is int and schema > PROFILE_SCHEMA:
            raise bad(file.name, "a newer Torchstone wrote it", "Install that version, or newer.")
        try:
            profile = from_data(Profile, record)
            check_profile(profile)
        except (RecordError, BrokenPromise) as error:
            raise bad(file.name, f"this profile is damaged ({error})") from None
        except (OverflowError, RecursionError):
            raise bad(file.name, "this profile is damaged (a number or its depth)") from None
        return _printable(profile)

    def write(self, profile: Profile) -> bytes:
        """The record."""
        data: dict[str, Any] = {"format": MARK, "profile": to_data(profile)}
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()

    def remarks(self, profile: Profile) -> tuple[str, ...]:
        """Nothing is left out."""
        return ()


def _printable(profile: Profile) -> Profile:
    """The same with names and sentences that can be printed; source text stays as it is."""
    return replace(
        profile,
        frames=tuple(replace(f, name=clean(f.name), file=clean(f.file)) for f in profile.frames),
        threads=tuple(replace(one, name=clean(one.name)) for one in profile.threads),
        tool=clean(profile.tool),
        label=clean(profile.label),
        problems=tuple(clean(one) for one in profile.problems),
        notes=tuple(clean(one) for one in profile.notes),
    )


OWN = OwnFormat()
