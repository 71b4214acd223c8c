"""From trials to the table: how often each tool was right, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from aa_journal import Row
from scipy.special import betaincinv

ENOUGH_TRIALS = 20
"""Fewer than this and an aim is not evaluated: even 0 of 19 leaves room for 18 %."""
MOST_FALSE = 0.05
LEAST_COVERED = 0.90
TOOLS = ("ours", "torch", "pyperf")
NAMES = {
    "ours": "torchstone",
    "torch": "torch.utils.benchmark",
    "pyperf": "pyperf",
    "usual": "usual, 30 repeats",
    "usual-filled": "usual, same wall time",
    "torch-one": "torch.utils.benchmark, one process",
}
"""Of all tools, in the order of the tables."""

Interval = tuple[float, float]


def clopper_pearson(successes: float, trials: float, level: float = 0.95) -> Interval:
    """The exact (conservative) interval of a share; the counts need not be whole."""
    tail, rest = 0.5 * (1.0 - level), trials - successes
    low = float(betaincinv(successes, rest + 1.0, tail)) if successes > 0.0 else 0.0
    high = float(betaincinv(successes + 1.0, rest, 1.0 - tail)) if rest > 0.0 else 1.0
    return low, high


@dataclass(frozen=True)
class Aims:
    """What we ask of ourselves."""

    found: Mapping[int, float]
    """The least share found when quiet, by effect in per cent."""
    half_width: float | None = None
    """The most that half an interval may have, by the median, when quiet."""


AIMS = Aims({5: 0.95, 2: 0.70})


@dataclass(frozen=True)
class Share:
    """How many of how many, with the exact 95 % interval."""

    count: int
    of: int

    @property
    def rate(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> Interval:
        return clopper_pearson(self.count, self.of)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.0%} ({self.count}/{self.of}; {low:.0%}–{high:.0%})"


@dataclass(frozen=True)
class Line:
    """One tool at one effect, quiet or loaded."""

    tool: str
    effect: int
    load: bool
    trials: int
    failed: int
    different: Share | None
    wrong_way: int
    covered: Share | None
    error: float | None
    half_width: float | None
    wall_s: float | None


def summarise(rows: Iterable[Row]) -> list[Line]:
    """One line a group, in a fixed order."""
    groups: dict[tuple[bool, int, str], list[Row]] = {}
    for row in rows:
        if row["kind"] == "trial":
            groups.setdefault((row["load"], row["effect"], row["tool"]), []).append(row)
    tools = list(NAMES)
    order = sorted(groups, key=lambda key: (key[0], key[1], tools.index(key[2])))
    return [_line(key, groups[key]) for key in order]


def _line(key: tuple[bool, int, str], rows: Sequence[Row]) -> Line:
    load, effect, tool = key
    whole = [row for row in rows if not row.get("error")]
    verdicts = [row["verdict"] for row in whole]
    wanted = ("slower",) if effect else ("slower", "faster")
    ratios = [row for row in whole if row.get("ratio")]
    # Without a ratio (a withheld verdict) there is no interval to be right or wrong.
    intervals = [row for row in whole if _finite(row.get("interval"))]
    return Line(
        tool=tool,
        effect=effect,
        load=load,
        trials=len(whole),
        failed=len(rows) - len(whole),
        different=Share(sum(v in wanted for v in verdicts), len(whole)) if whole else None,
        wrong_way=verdicts.count("faster") if effect else 0,
        covered=Share(sum(map(_covers, intervals)), len(intervals)) if intervals else None,
        error=median(abs(r["ratio"] / r["true_ratio"] - 1) for r in ratios) if ratios else None,
        half_width=median(map(_half_width, intervals)) if intervals else None,
        wall_s=fmean(row["wall_s"] for row in whole) if whole else None,
    )


def _finite(interval: list[float | None] | None) -> bool:
    return interval is not None and None not in interval


def _covers(row: Row) -> bool:
    low, high = row["interval"]
    return bool(low <= row["true_ratio"] <= high)


def _half_width(row: Row) -> float:
    low, high = row["interval"]
    return float((high - low) / 2)


def aims(lines: Iterable[Line], asked: Aims = AIMS) -> list[tuple[str, str, str, str]]:
    """What we ask of ourselves: the aim, where, what was seen, and whether it is met."""
    found = []
    for line in lines:
        if line.tool != "ours":
            continue
        where = f"{line.effect} %, {_load(line.load)}"
        if line.effect == 0:
            aim = f"false 'different' at most {MOST_FALSE:.0%}"
            found.append((aim, where, *_judge(line.different, most=MOST_FALSE)))
        elif line.effect in asked.found and not line.load:
            least = asked.found[line.effect]
            found.append((f"found at least {least:.0%}", where, *_judge(line.different, least)))
        aim = f"covered at least {LEAST_COVERED:.0%}"
        found.append((aim, where, *_judge(line.covered, LEAST_COVERED)))
        if asked.half_width is not None and line.half_width is not None and not line.load:
            met = "met" if line.half_width <= asked.half_width else "not met"
            aim = f"half-width at most {asked.half_width:.1%}"
            found.append((aim, where, percent(line.half_width), met))
    return found


def _judge(share: Share | None, least: float = 0.0, most: float = 1.0) -> tuple[str, str]:
    """What was seen, and the verdict; a star where the interval lies on both sides of the aim."""
    if share is None:
        return "nothing", "not enough trials"
    if share.of < ENOUGH_TRIALS:
        return str(share), "not enough trials"
    low, high = share.interval
    met = least <= share.rate <= most
    sure = (low >= least and high <= most) if met else (high < least or low > most)
    return str(share), ("met" if met else "not met") + ("" if sure else "*")


HEAD: tuple[str, ...] = ("machine", "true effect", "tool", "n", "different", "wrong way", "covered")
HEAD += ("median error", "half-width", "wall time")
EXPLAINED = "different: a false alarm at 0 %, else found slower; Clopper-Pearson intervals at 95 %."
STAR = "* the interval also holds rates on the other side of the aim."


def report(rows: Sequence[Row], markdown: bool = False) -> str:
    """Both tables."""
    lines = summarise(rows)
    text = [table(HEAD, [cells(line) for line in lines], markdown), "", EXPLAINED]
    evaluated = aims(lines)
    if evaluated:
        text += ["", table(("aim", "where", "seen", "verdict"), evaluated, markdown), ""]
        text.append(STAR)
    return "\n".join(text)


def cells(line: Line) -> tuple[str, ...]:
    """A row under `HEAD`."""
    failed = f" (+{line.failed} failed)" if line.failed else ""
    return (
        _load(line.load),
        f"{line.effect} %",
        NAMES[line.tool],
        f"{line.trials}{failed}",
        str(line.different or "–"),
        str(line.wrong_way) if line.effect else "–",
        str(line.covered or "–"),
        percent(line.error),
        percent(line.half_width),
        "–" if line.wall_s is None else f"{line.wall_s:.1f} s",
    )


def _load(load: bool) -> str:
    return "one core loaded" if load else "quiet"


def percent(value: float | None) -> str:
    """Two decimals, or a dash."""
    return "–" if value is None else f"{100 * value:.2f} %"


def table(head: Sequence[str], body: Sequence[Sequence[str]], markdown: bool) -> str:
    """A table for the terminal, or in Markdown."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rows = [[c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in (head, *body)]
    rows.insert(1, ["-" * width for width in widths])
    if markdown:
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in rows)
