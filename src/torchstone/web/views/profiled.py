"""Lists of profiles, and those of the same work as a result's arms with the command for more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchstone.records import Measurement, Result
from torchstone.store.profiles import ProfileSummary
from torchstone.web.cells import bytes_cell, text_cell, when
from torchstone.web.page import Cell, Code, Column, Place, Section, Table
from torchstone.web.sources import Source
from torchstone.web.tables import LazyRows
from torchstone.web.views.looks import machine_of, profile_commands, shapes_words

MOST_PROFILES = 50
PROFILES = (
    Column("profile", "Profile"),
    Column("variant", "Variant"),
    Column("how", "How"),
    Column("tool", "Tool"),
    Column("label", "Label"),
    Column("created", "Taken"),
    Column("bytes", "Size", True, "bytes"),
)


def profile_sections(
    source: Source, result: Result, arms: Sequence[Measurement]
) -> Iterable[Section]:
    """Profiles that `torchstone profile` took of the same work here, and the command for more."""
    wanted = [(one.arm, machine_of(one)) for one in arms if one.arm.target]
    listed = source.store.profiles_of(result.id, wanted, MOST_PROFILES + 1)
    notes = [f"Only the newest {MOST_PROFILES}."] if len(listed) > MOST_PROFILES else []
    notes += [shapes_words(arm for arm, _ in wanted)] if listed else []
    yield replace(profiles_table(listed[:MOST_PROFILES]), note=" ".join(filter(None, notes)))
    command = profile_commands(arms)
    if command:
        yield Code("profile", "Take another" if listed else "Take one", command)


def profiles_table(listed: Sequence[ProfileSummary]) -> Table:
    """Profiles with links to their views."""
    rows = LazyRows(listed, _profile)
    empty = "No profile of this is stored."
    return Table("profiles", "Profiles", PROFILES, rows, empty=empty, total=len(rows))


def _profile(one: ProfileSummary) -> tuple[Cell, ...]:
    return (
        text_cell(one.id, Place("profile", one.id)),
        text_cell(one.variant),
        text_cell(one.how),
        text_cell(one.tool),
        text_cell(one.label),
        Cell(one.created, when(one.created)),
        bytes_cell(one.bytes),
    )
