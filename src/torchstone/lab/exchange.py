"""`torchstone export` and `torchstone import`: runs out of the store and into it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from torchstone.interop import Imported, find_format, medians_of
from torchstone.lab.bench import new_id
from torchstone.records import CaseFigures, UsageError
from torchstone.store import open_store


@dataclass(frozen=True)
class Exported:
    """Files by name, and what they leave out."""

    files: Mapping[str, bytes]
    remarks: Sequence[str]


def export_run(wanted: str, format_name: str, db: str | None) -> Exported:
    """The files of a run in another tool's format. Its medians come from the raw samples."""
    wanted_format = find_format(format_name)
    with open_store(db, create=False, read_only=True) as store:
        view = store.run_view(wanted)

        @cache  # asked for twice; the samples themselves need not stay in memory
        def medians(case: CaseFigures) -> tuple[float, float] | None:
            return medians_of(store.load(case.result_id), case) if case.result_id else None

        return Exported(wanted_format.write(view, medians), wanted_format.remarks(view, medians))


def import_files(format_name: str, paths: Sequence[str], label: str, db: str | None) -> Imported:
    """Read the files, and store what they hold as one run with their origin."""
    imported = find_format(format_name).read([Path(path) for path in paths])
    run = replace(imported.run, id=new_id(), label=label or imported.run.label)
    imported = replace(imported, run=run)
    with open_store(db) as store:
        store.import_run(run, imported.cases, run.origin)
    return imported


def join_databases(paths: Sequence[str], db: str | None) -> list[str]:
    """Copy runs from other databases; shards of one run become one run here."""
    lines = []
    for path in paths:
        if not os.path.isfile(path):
            raise UsageError(f"There is no database {path}.")
        with open_store(path, create=False, read_only=True) as other, open_store(db) as store:
            for summary in other.list_runs(limit=1_000_000):
                copied = store.merge_run(other, summary.id)
                lines.append(f"{summary.id}: {copied} cases from {os.path.basename(path)}")
    return lines
