"""What outlives a call: the histories, made once and found again, and the file of figures."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dashboard_extras import PROFILES, add_extras, are_there
from dashboard_history import Shape, build, stored_nights
from dashboard_routes import newest_night
from dashboard_server import BenchmarkError

from torchstone import __version__
from torchstone.store import heartbeat, open_store, profiles

CASE_BYTES, RESULT_BYTES = 700, 25_000
"""A little more than what a case of the history takes, and a result with its samples."""
RESULTS_OF_A_CASE = 3 / 8
"""Eight variants share three baselines."""

Document = dict[str, Any]
Aims = list[tuple[str, str, str]]


def say(text: str) -> None:
    """Something that gets on."""
    print(text, file=sys.stderr, flush=True)


def make(path: Path, shape: Shape) -> Document | None:
    """The history at that place; what making it took, or None where it was whole already."""
    with ExitStack() as stack:
        if path.exists():
            store = stack.enter_context(open_store(str(path), create=False))
            if stored_nights(store, shape) == shape.nights and are_there(store, shape):
                return None
    expected = shape.nights * shape.cases * CASE_BYTES + int(
        shape.raw_nights * shape.cases * RESULTS_OF_A_CASE * RESULT_BYTES
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free + (path.stat().st_size if path.exists() else 0)
    if free < expected * 1.2:
        raise BenchmarkError(
            f"{expected / 1e9:.1f} GB are needed for {path}, {free / 1e9:.1f} GB free"
        )
    say(f"{path}: {shape.nights} nights of {shape.cases} cases, synthetic")
    took = build(path, shape, say=True)
    with open_store(str(path), create=False) as store:
        cases = store.cases(newest_night(store).id)
        results = list(dict.fromkeys(one.result_id for one in cases if one.result_id))
        add_extras(store, shape, results[:PROFILES])
    return {"seconds": took, "cases": shape.nights * shape.cases}


def weigh(path: Path) -> Document:
    """What is on disk."""
    with open_store(str(path), create=False, read_only=True) as store:
        size = store.size()
    return {
        "file_bytes": size.file_bytes,
        "runs": size.runs,
        "cases": size.cases,
        "bytes_a_case": size.file_bytes / size.cases,
        "facts_a_case": size.facts_per_case,
        "samples_a_case": size.whole.per_case,
        "cases_with_samples": size.whole.cases,
    }


def size_words(weight: Document) -> str:
    """For the terminal."""
    return (
        f"{weight['file_bytes'] / 1e6:,.0f} MB, {weight['cases']:,} cases in {weight['runs']:,} "
        f"runs: {weight['bytes_a_case']:,.0f} bytes a case; {weight['facts_a_case'] or 0:,.0f} of "
        f"figures, and where samples are kept ({weight['cases_with_samples']:,} cases) "
        f"{weight['samples_a_case'] or 0:,.0f} more"
    )


def default_path(shape: Shape) -> Path:
    """Where a history goes that nobody gave a place."""
    return Path("build") / f"dashboard-{shape.nights}x{shape.cases}.db"


def remove(path: Path) -> None:
    """A history with all that lies beside it."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    for folder in (profiles.folder_of(path), heartbeat.folder_of(path)):
        shutil.rmtree(folder, ignore_errors=True)


class Recorder:
    """The file of figures. What it holds of the same history stays until it is measured again."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._path = path
        self.aims: Aims = []
        self._document: Document = {
            "schema": 1,
            "what": "the dashboard on a synthetic history",
            "shape": asdict(shape),
            "torchstone": __version__,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "cores": len(os.sched_getaffinity(0)),
            "databases": {},
            "aims": {},
        }
        if path.exists():
            old = json.loads(path.read_text(encoding="utf-8"))
            if old.get("shape") != self._document["shape"]:
                raise BenchmarkError(
                    f"{path} holds the figures of another history; name another --out"
                )
            fresh = ("cores", "torchstone", "python", "sqlite")
            self._document = {**old, **{key: self._document[key] for key in fresh}}
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def weight(self, shape: Shape) -> Document | None:
        """What a history weighed when it was made, before writers added to it."""
        found: Document | None = self._document["databases"].get(str(shape.nights))
        return found

    def database(self, shape: Shape, built: Document | None, weight: Document) -> None:
        """What a history took to make, if it was made now, and what it weighs."""
        known = self._document["databases"].get(str(shape.nights), {})
        self._document["databases"][str(shape.nights)] = {
            **known,
            **({"built": built} if built else {}),
            **weight,
        }
        self._write()

    def part(self, work: Callable[[Document], Aims]) -> None:
        """Do a part of the work, and keep its figures."""
        found = work(self._document)
        self.aims += found
        for aim, seen, verdict in found:
            self._document["aims"][aim] = [seen, verdict]
        self._write()

    def _write(self) -> None:
        part = self._path.with_name(self._path.name + ".part")
        part.write_text(json.dumps(self._document, indent=1) + "\n", encoding="utf-8")
        part.replace(self._path)
