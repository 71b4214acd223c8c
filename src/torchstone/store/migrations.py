"""Older databases brought up to date: one step for each version, all in one transaction.

A step only ever adds; an index that nothing asks for any more may go. A program of the older
version that has the file open meanwhile goes on working, and no step can lose what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection

from torchstone.store import schema

STEPS: Mapping[int, Callable[[Connection], None]] = {}
"""By the version that a step leads to. A table changed later needs its older form kept here."""


def bring_up_to_date(connection: Connection) -> None:
    """Make the tables, or add what an older version lacks; the caller holds the write lock.

    The version is asked for under the lock, because another program may have been quicker.
    """
    version = schema.check_version(connection)
    if not version:
        schema.create(connection)
        return
    for step in range(version + 1, schema.SCHEMA + 1):
        STEPS[step](connection)
        schema.set_version(connection, step)
