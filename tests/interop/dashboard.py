"""The dashboard's own aggregates, by the dashboard's definitions and under its names.

They are not ours (`stats` has those): a failure is left out of the means, the means have no
interval, and the denominator is the rows that there are. What they say of a run of ours is what
the dashboard would say of its exported files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchstone.interop.assemble import export_rows
from torchstone.interop.base import Medians
from torchstone.interop.files import number
from torchstone.interop.rows import PASSING, SKIPPED, Naming
from torchstone.records import RunView


@dataclass(frozen=True)
class DashboardRow:
    """One configuration as the dashboard sums it up; None where no model has the figure."""

    suite: str
    compiler: str
    dtype: str
    mode: str
    device: str
    pass_count: int
    total_count: int
    geomean: float | None
    compilation_latency: float | None
    compression_ratio: float | None

    @property
    def passrate(self) -> float:
        """Passing rows out of all rows."""
        return self.pass_count / self.total_count


def dashboard(view: RunView, medians: Medians | None = None) -> tuple[DashboardRow, ...]:
    """One row for each configuration, in the run's order."""
    groups: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for case in view.complete:
        for row in export_rows(case, medians):
            cells = groups.setdefault(_configuration(row.named), {})
            wanted = {
                name: text
                for name, text in row.by_column.items()
                # In the accuracy table, compilation_latency is another quantity.
                if (name == "accuracy") == (row.named.table == "accuracy")
            }
            cells.setdefault(row.by_column.get("name", ""), {}).update(wanted)
    return tuple(_summary(place, list(models.values())) for place, models in groups.items())


def _configuration(named: Naming) -> tuple[str, ...]:
    return named.suite, named.compiler, named.dtype, named.mode, named.device


def _summary(place: tuple[str, ...], models: Sequence[Mapping[str, str]]) -> DashboardRow:
    passing = [one for one in models if one.get("accuracy") in PASSING]
    counted = [
        one
        for one in passing
        if one["accuracy"] == SKIPPED or number(one.get("speedup")) not in (None, 0.0)
    ]
    speedups = _numbers(passing, "speedup")
    geomean = None
    if speedups and min(speedups) > 0:
        geomean = math.exp(statistics.fmean(map(math.log, speedups)))
    suite, compiler, dtype, mode, device = place
    return DashboardRow(
        suite=suite,
        compiler=compiler,
        dtype=dtype,
        mode=mode,
        device=device,
        pass_count=len(counted),
        total_count=len(models),
        geomean=geomean,
        compilation_latency=_mean(_numbers(passing, "compilation_latency")),
        compression_ratio=_mean(_numbers(passing, "compression_ratio")),
    )


def _numbers(models: Iterable[Mapping[str, str]], column: str) -> list[float]:
    values = (number(one.get(column)) for one in models)
    return [value for value in values if value and math.isfinite(value)]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
