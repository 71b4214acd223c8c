"""A writer beside readers: stores one case after another as `torchstone run` does.

Shows a sign of life, so that the dashboard takes its run for one that is measured now; goes on with
the run that was left unfinished; ends when its standard input does, and then prints what it did.

    python benchmarks/dashboard_writer.py history.db --nights 730 --every 0.5
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from dashboard_history import WRITERS, History, Shape, cases_of, run_of
from dashboard_samples import RawNights

from torchstone.records import Outcome, Run, TorchstoneError, UsageError
from torchstone.store import Store, StoreBusyError, heartbeat, open_store

READY = "ready"


class Writer:
    """Stores case by case until it is told to stop."""

    def __init__(self, path: Path, shape: Shape, every_s: float) -> None:
        self._path, self._every_s = path, every_s
        self._history = History(shape)
        self._raw = RawNights(shape.seed, templates=1)
        self._stop = threading.Event()
        self.took_ms: list[float] = []
        self.locked: list[str] = []
        self.failed: list[str] = []

    def stop(self) -> None:
        """After the case that is stored just now."""
        self._stop.set()

    def write(self) -> None:
        """One run after another."""
        number = 0
        with open_store(str(self._path), create=False) as store:
            while not self._stop.is_set():
                run = self._run(number)
                left = _left(store, run)
                if left:
                    self._write_run(store, run, number, left)
                number += 1

    def _run(self, number: int) -> Run:
        night = self._history.shape.nights + number
        made = run_of(self._history, night)
        return replace(made, id=f"{WRITERS}{number}", label=f"synthetic writer {number}")

    def _write_run(self, store: Store, run: Run, number: int, left: list[int]) -> None:
        rng = np.random.default_rng([self._history.shape.seed, 5, number])
        night = self._history.shape.nights + number
        figures = list(cases_of(self._history, night, rng, {}))
        with heartbeat.start_heartbeat(self._path, run.id) as sign:
            store.begin_run(run)
            for done, place in enumerate(left):
                sign.now(figures[place].key.name, done, len(left))
                result, case = None, figures[place]
                if case.outcome is Outcome.OK:
                    result = self._raw.result_of(run, place)
                    case = replace(case, result_id=result.id)
                began = time.perf_counter()
                try:
                    store.add_cases(run.id, result, [(place, case)])
                except StoreBusyError as error:
                    self.locked.append(str(error))
                except TorchstoneError as error:
                    self.failed.append(str(error))
                self.took_ms.append((time.perf_counter() - began) * 1e3)
                if len(self.took_ms) == 1:
                    print(READY, flush=True)
                if self._stop.wait(self._every_s):
                    return


def _left(store: Store, run: Run) -> list[int]:
    """The places of the plan that are not stored yet."""
    try:
        done = store.done_positions(run.id)
    except UsageError:  # not begun
        done = set()
    return [place for place in range(len(run.plan)) if place not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description="Store a case now and then, until end of input.")
    parser.add_argument("database", type=Path)
    parser.add_argument("--nights", type=int, default=Shape.nights)
    parser.add_argument("--models", type=int, default=Shape.models)
    parser.add_argument("--variants", type=int, default=Shape.variants)
    parser.add_argument("--seed", type=int, default=Shape.seed)
    parser.add_argument("--every", type=float, default=0.5)
    asked = parser.parse_args()
    shape = Shape(asked.nights, asked.models, asked.variants, seed=asked.seed)
    writer = Writer(asked.database, shape, asked.every)

    def wait_for_the_end() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        writer.stop()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    with suppress(KeyboardInterrupt):
        writer.write()
    told = {"took_ms": writer.took_ms, "locked": writer.locked, "failed": writer.failed}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
