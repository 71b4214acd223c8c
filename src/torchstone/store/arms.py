"""Which arms are the same work, however they were named and whatever they were measured for."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, Table

from torchstone.records import ArmSpec

KEY = ("target", "variant", "mode", "precision", "device")
"""What tables of looks at an arm have a column and an index for."""


def same_work(one: ArmSpec, other: ArmSpec) -> bool:
    """Whether a look at one arm says something of the other.

    A look is at steps of one shape, also where a measurement went through several in turn.
    """
    return replace(one, name=other.name, seed=other.seed, shapes=other.shapes) == other


def key_of(arm: ArmSpec) -> dict[str, str]:
    """The values of those columns."""
    return {name: getattr(arm, name) for name in KEY}


def matching(table: Table, arm: ArmSpec) -> list[ColumnElement[bool]]:
    """Rows whose arm may be the same work: threads and settings are yet to be compared."""
    return [table.c[name] == value for name, value in key_of(arm).items()]
