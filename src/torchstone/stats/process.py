"""One process's samples as arrays: what every estimator looks at."""

# mypy: implicit-reexport

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torchstone.records import Measurement, Turn

# numpy, imported when it is first used: it takes a tenth of a second, and much here needs none.
# Other modules of the package take `np` from here.


class LazyModule:
    """A module that is imported with the first thing that is asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)  # the next time it is found without coming here
        return found


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
else:
    np = LazyModule("numpy")
    Floats = Ints = Bools = Any

NANOSECONDS = 1e9


@dataclass(frozen=True, eq=False)
class ProcessData:
    """The samples of one process, in seconds per call, each with its turn and its two probes.

    `turn` holds the turn's index. `probe_before` and `probe_after` are the probe times in
    seconds on either side of the sample's block; NaN where no probe was taken. `reading` is the
    number of the one before among all of the process: the same for all samples of a block.
    """

    samples: Floats
    turn: Ints
    probe_before: Floats
    probe_after: Floats
    reading: Ints

    def without(self, turn: int) -> ProcessData:
        """The same process with one turn left out."""
        return self.only(self.turn != turn)

    def only(self, keep: Bools) -> ProcessData:
        """The same process with some of its samples."""
        return ProcessData(
            self.samples[keep],
            self.turn[keep],
            self.probe_before[keep],
            self.probe_after[keep],
            self.reading[keep],
        )

    @property
    def probes(self) -> Floats:
        """Every reading of the probe once, in no order; those that were not taken left out."""
        places = np.concatenate([self.reading, self.reading + 1])
        readings = np.concatenate([self.probe_before, self.probe_after])
        _, once = np.unique(places, return_index=True)
        found: Floats = readings[once]
        kept: Floats = found[np.isfinite(found)]
        return kept


def process_data(measurement: Measurement, replicate: int) -> ProcessData:
    """The samples of one replicate of an arm; empty arrays when it has none."""
    turns = sorted(
        (t for t in measurement.turns if t.replicate == replicate and t.wall_ns),
        key=lambda t: t.index,
    )
    counts = np.asarray([len(t.wall_ns) for t in turns], dtype=np.int64)
    walls = np.asarray([w for t in turns for w in t.wall_ns], dtype=np.float64)
    before, after, reading = _probes(turns, counts)
    return ProcessData(
        samples=walls / (measurement.loops * NANOSECONDS),
        turn=np.repeat(np.asarray([t.index for t in turns], dtype=np.int64), counts),
        probe_before=before,
        probe_after=after,
        reading=reading,
    )


def replicates_with_samples(measurement: Measurement) -> tuple[int, ...]:
    """The replicates of an arm that have at least one sample, in order."""
    return tuple(sorted({t.replicate for t in measurement.turns if t.wall_ns}))


def processes_of(measurement: Measurement) -> list[ProcessData]:
    """The samples of every replicate that has any."""
    return [process_data(measurement, r) for r in replicates_with_samples(measurement)]


def _probes(turns: Sequence[Turn], counts: Ints) -> tuple[Floats, Floats, Ints]:
    """The probe before and after each sample's block of `probe_every` samples, in seconds."""
    probes: list[float] = []
    starts = []
    for turn in turns:
        starts.append(len(probes))
        probes.extend(_known_probes(turn))
    table = np.asarray(probes, dtype=np.float64) / NANOSECONDS
    every = np.asarray([_probe_every(t) for t in turns], dtype=np.int64)
    place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    block = place // np.repeat(every, counts) + np.repeat(np.asarray(starts, np.int64), counts)
    return table[block], table[block + 1], block


def _known_probes(turn: Turn) -> list[float]:
    """One probe before each block and one after the last, NaN where none was taken.

    A last block cut short has no probe behind it, so its samples never count as quiet.
    """
    needed = (len(turn.wall_ns) - 1) // _probe_every(turn) + 2
    taken: list[float] = list(turn.probe_ns[:needed]) if turn.probe_every > 0 else []
    return taken + [math.nan] * (needed - len(taken))


def _probe_every(turn: Turn) -> int:
    return turn.probe_every if turn.probe_every > 0 else len(turn.wall_ns)
