"""The store's part on profiles."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import ArmSpec, Profile
from torchstone.store import artefacts, lookup, profiles
from torchstone.store.base import Base
from torchstone.store.profiles import ProfileSummary


class ProfilesPart(Base):
    """Profiles: a row each, and a file beside the database."""

    def save_profile(self, profile: Profile, result: str = "") -> int:
        """Keep a profile, by itself or beside a result; the bytes that its file takes."""
        self._refuse_reading_only()
        packed = profiles.pack(profile)
        digest = artefacts.put(artefacts.folder_of(self.path), packed)
        with self._writing() as connection:
            profiles.insert(connection, profile, digest, len(packed), result)
        return len(packed)

    def profile_id(self, wanted: str) -> str:
        """The whole id of the profile that `load_profile` would give."""
        with self._reading() as connection:
            return lookup.resolve_profile(connection, wanted).id

    def load_profile(self, wanted: str) -> Profile:
        """The profile of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            return profiles.load(connection, artefacts.folder_of(self.path), wanted)

    def list_profiles(self, limit: int = 20, result: str | None = None) -> list[ProfileSummary]:
        """The newest first; those of one result where it is given."""
        with self._reading() as connection:
            return profiles.summaries(connection, limit, result)

    def profiles_of(
        self, result: str, arms: Sequence[tuple[ArmSpec, str]], limit: int = 20
    ) -> list[ProfileSummary]:
        """Profiles of a result, and of the same work as one of these arms, each with its machine;
        the newest first."""
        with self._reading() as connection:
            return profiles.of_arms(connection, limit, result, arms)
