"""What the Python API gives back: the record, with its figures and its report within reach."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, SupportsIndex, cast, overload

from torchstone.records import Comparison, Measurement, Result, UsageError, Verdict
from torchstone.records.format import format_interval, format_ratio, format_seconds, ratio_decimals
from torchstone.records.plugins import did_you_mean
from torchstone.show.rows import Figures, figures, lead_of, speedup_interval
from torchstone.show.terminal import report

DEFAULT_WIDTH = 100
ALL_CHECKS = "report(verbose=True)"


@dataclass(frozen=True)
class Times:
    """Seconds per call of one arm, by the names that every report has; None where not known."""

    floor: float | None
    floor_interval: tuple[float, float] | None
    typical: float | None
    typical_interval: tuple[float, float] | None
    fastest: float
    samples: tuple[float, ...]


class ArmResult(Measurement):
    """One arm: its record, its times, and how it compares with the baseline."""

    @property
    def name(self) -> str:
        """As in the report."""
        return self.arm.name

    @property
    def time(self) -> Times | None:
        """Seconds per call; None without samples."""
        found: Figures | None = figures(self, cast("float", self.__dict__.get("alpha", 0.05)))
        if found is None:
            return None
        return Times(
            found.floor.value,
            found.floor.interval,
            found.typical.value,
            found.typical.interval,
            min(found.samples),
            found.samples,
        )

    @property
    def comparison(self) -> Comparison | None:
        """With the baseline; None of the baseline itself."""
        return cast("Comparison | None", self.__dict__.get("compared"))

    @property
    def speedup(self) -> float | None:
        """Time of the baseline over this arm's; None of the baseline itself."""
        return self.comparison.speedup if self.comparison else None

    @property
    def verdict(self) -> Verdict | None:
        """Against the baseline; None of the baseline itself."""
        return self.comparison.verdict if self.comparison else None

    def __repr__(self) -> str:
        return f"<arm {self.name}: {_arm_words(self)}>"


class Arms(tuple[ArmResult, ...]):
    """The arms in order; by number as in any tuple, or by name: `arms["inductor"]`."""

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> ArmResult: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[ArmResult, ...]: ...
    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for arm in self:
            if arm.name == key:
                return arm
        names = [arm.name for arm in self]
        raise KeyError(f"no arm {key!r}. {did_you_mean(key, names)}Arms: {', '.join(names)}.")

    def keys(self) -> list[str]:
        """The names, in order."""
        return [arm.name for arm in self]


class BenchResult(Result):
    """A `Result` for people: figures by name, `report()`, a short `repr`, a picture in notebooks.

    `speedup` and `verdict` are those of the one arm that is compared with the baseline; with more
    arms ask each: `result.arms["inductor"].speedup`.
    """

    arms: Arms

    @property
    def comparison(self) -> Comparison:
        """The only one; a `UsageError` where there is none or more."""
        if len(self.comparisons) != 1:
            names = ", ".join(arm.name for arm in self.arms[1:])
            many = f"Ask an arm: result.arms[NAME] of {names}." if names else "Give vs=..."
            raise UsageError(f"There are {len(self.comparisons)} comparisons.", many)
        return self.comparisons[0]

    @property
    def speedup(self) -> float | None:
        """Time of the baseline over the other arm's."""
        return self.comparison.speedup

    @property
    def verdict(self) -> Verdict:
        """Of the other arm against the baseline: `faster`, `slower`, `same`, `cannot tell`, …"""
        return self.comparison.verdict

    def report(self, *, verbose: bool = False, color: bool | None = None, width: int = 0) -> str:
        """What `torchstone bench` prints; `verbose` has every check."""
        if color is None:
            color = bool(getattr(sys.stdout, "isatty", bool)()) and "NO_COLOR" not in os.environ
        width = width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
        saved = bool(self.__dict__.get("saved", False))
        return report(self, color=color, width=width, saved=saved, verbose=verbose, more=ALL_CHECKS)

    def to_json(self) -> dict[str, Any]:
        """The document that `--json` writes."""
        from torchstone.show.markdown import document

        return document(self)

    def __str__(self) -> str:
        return self.report(color=False)

    def __repr__(self) -> str:
        lines = [f"  {arm.name}: {_arm_words(arm)}" for arm in self.arms]
        return "\n".join([f"<torchstone result {self.id}", *lines, "  .report() has the rest>"])

    def _repr_html_(self) -> str:
        from torchstone.show.notebook import result_html

        return result_html(self)


def _arm_words(arm: ArmResult) -> str:
    if arm.outcome.value != "ok":
        return f"{arm.outcome.words}: {arm.detail.message}".rstrip(": ")
    return ", ".join(_words_of(arm))


def _words_of(arm: ArmResult) -> Iterator[str]:
    lead = cast("str", arm.__dict__.get("lead", "floor"))
    time = arm.time
    seconds = getattr(time, lead) if time is not None else None
    yield f"{lead} {format_seconds(seconds, 3)}" if seconds is not None else f"{lead} unknown"
    compared = arm.comparison
    if compared is None:
        return
    yield compared.verdict.value
    if compared.speedup is not None:
        ends = speedup_interval(compared)
        decimals = ratio_decimals(compared.speedup, ends)
        yield f"{format_ratio(compared.speedup, decimals)} ({format_interval(ends, decimals)})"


def for_people(result: Result, saved: bool = False) -> BenchResult:
    """The same record, within reach."""
    by_name = {one.new: one for one in result.comparisons}
    lead = lead_of(result)
    arms = []
    for one in result.arms:
        arm = ArmResult(**{f.name: getattr(one, f.name) for f in fields(Measurement)})
        # Not fields: the record stays what it is wherever it is written.
        arm.__dict__.update(
            alpha=result.method.alpha, compared=by_name.get(one.arm.name), lead=lead
        )
        arms.append(arm)
    values = {f.name: getattr(result, f.name) for f in fields(Result)}
    made = BenchResult(**{**values, "arms": Arms(arms)})
    made.__dict__["saved"] = saved
    return made
