"""The shape of a format: another tool's files, in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from torchstone.records import CaseMetrics, Run, RunView, UsageError
from torchstone.records.plugins import Registry, did_you_mean

Medians = Callable[[CaseMetrics], "tuple[float, float] | None"]
"""From a case to the medians of the baseline's and the new arm's samples, in nanoseconds a call;
None where the samples are not available. See `medians_of`."""


@dataclass(frozen=True)
class Imported:
    """What files of another tool held, as one run.

    The cases carry an outcome and the files' own figures (`CaseMetrics.foreign`), never a figure
    of ours. `notes` is what a reader of them must know; the run carries the same.
    """

    run: Run
    cases: tuple[CaseMetrics, ...]
    notes: tuple[str, ...] = ()

    @property
    def view(self) -> RunView:
        """The run with its cases, as a table is made from it."""
        return RunView(self.run, self.cases)


class Format(Protocol):
    """One kind of file. Found by entry point; the entry point's name is the format's name."""

    @property
    def name(self) -> str:
        """How it is named on the command line: `dynamo-csv`."""

    def read(self, paths: Sequence[Path], /) -> Imported:
        """The run that the files, or the folders with such files, hold.

        The files are not to be trusted. Whatever is wrong with them is a `UsageError` that names
        file and line; no other exception leaves here.
        """

    def write(self, view: RunView, medians: Medians | None = None) -> dict[str, bytes]:
        """The run as files, by name (a plain name, no folder)."""

    def remarks(self, view: RunView, medians: Medians | None = None) -> tuple[str, ...]:
        """What those files leave out or say otherwise than the run does, a sentence each."""


# Formats by name, through entry points.


FORMATS = Registry(
    "torchstone.formats",
    {
        "dynamo-csv": "torchstone.interop.dynamo_csv:DYNAMO_CSV",
        "hud-v3": "torchstone.interop.hud_v3:HUD_V3",
    },
)


def find_format(name: str) -> Format:
    """The format of that name; a `UsageError` that names the nearest ones otherwise."""
    known = FORMATS.by_name()
    if name in known:
        return cast("Format", known[name].load())
    names = ", ".join(sorted(known))
    raise UsageError(
        f"There is no format {name!r}.", f"{did_you_mean(name, known)}Formats: {names}."
    )
