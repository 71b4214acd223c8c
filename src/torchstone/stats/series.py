"""Series as arrays in the order of time: what changes are looked for in, and charts are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchstone.records import OURS, CaseKey, CaseRow, SeriesKey, SeriesRun
from torchstone.stats.estimators import Floats

IMPORTED = "imported"


@dataclass(frozen=True, eq=False)
class Line:
    """One series: its values in the order of time, and the runs they are of."""

    key: SeriesKey
    ident: str
    """How a page or a command names it: `c12.1.speedup` of a case, `i34` of an imported one."""
    runs: Sequence[int]
    """Numbers of runs in `Lines.runs`."""
    values: Floats
    case: CaseKey | None = None
    sides: tuple[Floats, Floats] | None = None
    """Of a speed-up: the times of eager and compiled in the same runs."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Series that are looked at together."""

    lines: Sequence[Line]
    runs: Mapping[str, Mapping[int, SeriesRun]]
    """By tool (ours, or `imported`) and number."""
    cases: Sequence[CaseRow] = ()
    """Of ours, also those that did not pass: what was there."""
    lanes: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    keys: Mapping[int, CaseKey] = field(default_factory=dict)

    def run(self, line: Line, place: int) -> SeriesRun:
        """The run of a value."""
        of = OURS if line.key.tool == OURS else IMPORTED
        return self.runs[of][line.runs[place]]
