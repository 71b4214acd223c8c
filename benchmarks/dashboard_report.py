"""The figures of the dashboard's benchmark: how they are summed up, evaluated and printed."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aa_report import table
from dashboard_load import Seen
from dashboard_routes import Route
from dashboard_server import Written
from dashboard_sql import Cost

MOST_OF_SQL = 2.0
"""The aim: a page costs at most so many times its bare SQL."""
LEAST_SQL_MS = 1.0
"""Below this a page's queries cost less than the request and the answer of an empty page do, and a
ratio to them says nothing: so little is asked by pages that remember what they were made from."""
MOST_GROWTH = 1.5
"""The aim: four years of history cost at most so many times one year."""


@dataclass(frozen=True)
class Times:
    """Milliseconds of so many requests. With few of them the 95th of 100 is the worst."""

    n: int
    p50: float
    p95: float
    p99: float
    most: float

    @staticmethod
    def of(took_ms: Sequence[float]) -> Times:
        """Nearest rank: a time that was really seen."""
        known = sorted(took_ms)
        p95, p99 = (known[math.ceil(share * len(known)) - 1] for share in (0.95, 0.99))
        return Times(len(known), statistics.median(known), p95, p99, known[-1])


@dataclass(frozen=True)
class Line:
    """One route."""

    name: str
    kind: str
    aim_ms: float
    size: int
    """Bytes of the answer."""
    cold: Times
    warm: Times
    cost: Cost
    at_once: Times | None = None
    """Of a page that the server makes for itself after its start: asked for before it has."""

    @property
    def first(self) -> Times:
        """The first request for a page of which nothing was made before."""
        return self.at_once or self.cold

    @property
    def ratios(self) -> dict[str, float | None]:
        """The page over what it asks itself: the first request over the SQL of a first request, a
        warm page over what it still asks. `made_from` is a warm page over all the SQL that it was
        once made from; it asks little of that again, so it says what remembering saves."""
        first, warm, cost = self.first.p50, self.warm.p50, self.cost
        return {
            "cold_sql": _over(first, cost.sql_ms),
            "warm_asked": _over(warm, cost.sql_warm_ms),
            "cold_store": _over(first, cost.store_ms),
            "made_from": _over(warm, cost.sql_ms),
        }

    def data(self) -> dict[str, Any]:
        """For the file."""
        return {**asdict(self), "ratios": self.ratios}


def _over(ms: float, asked_ms: float | None) -> float | None:
    return ms / asked_ms if asked_ms else None


RATIOS = {
    "cold_sql": "cold/SQL",
    "cold_store": "cold/store",
    "warm_asked": "warm/warm SQL",
    "made_from": "warm/SQL",
}


def routes_table(lines: Sequence[Line]) -> str:
    """A line a route, pages first."""
    head = (
        "page or route", "kB", "cold p50", "p95", "warm p50", "p95", "aim", "met",
        "SQL", "warm", "store", "warm", *RATIOS.values(),
    )  # fmt: skip
    body = [
        (
            line.name,
            f"{line.size / 1e3:.0f}",
            *(f"{ms:.0f}" for ms in (line.cold.p50, line.cold.p95, line.warm.p50, line.warm.p95)),
            f"<{line.aim_ms:.0f}",
            _met(line),
            f"{_ms(line.cost.sql_ms)} ({line.cost.statements})",
            f"{_ms(line.cost.sql_warm_ms)} ({line.cost.statements_warm})",
            _ms(line.cost.store_ms),
            _ms(line.cost.store_warm_ms),
            *(_times(line.ratios[name]) for name in RATIOS),
        )
        for line in lines
    ]
    return table(head, body, markdown=False)


def _met(line: Line) -> str:
    missed = [n for n in ("cold", "warm") if getattr(line, n).p95 >= line.aim_ms]
    return f"not {' nor '.join(missed)}" if missed else "yes"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}×"


def route_aims(lines: Sequence[Line]) -> list[tuple[str, str, str]]:
    """Aim, what was seen, and whether it is met."""
    found = []
    landing = next(line for line in lines if line.name == "landing")
    for state in ("warm", "cold"):
        p95 = getattr(landing, state).p95
        aim = f"landing page, {state}: p95 under {landing.aim_ms:.0f} ms"
        found.append((aim, f"{p95:.0f} ms", _word(p95 < landing.aim_ms)))
        others = [line for line in lines if line is not landing]
        slow = [line for line in others if getattr(line, state).p95 >= line.aim_ms]
        told = ", ".join(f"{line.name} {getattr(line, state).p95:.0f} ms" for line in slow)
        aim = f"all others, {state}: p95 under 100 ms (the overview over all time: 150 ms)"
        seen = f"{len(others) - len(slow)} of {len(others)}{'; not ' + told if told else ''}"
        found.append((aim, seen, _word(not slow)))
    if landing.at_once is not None:
        aim = f"landing page, asked for as the server starts: p95 under {landing.aim_ms:.0f} ms"
        p95 = landing.at_once.p95
        found.append((aim, f"{p95:.0f} ms", _word(p95 < landing.aim_ms)))
    pages = [line for line in lines if line.kind == "page"]
    cold = [(line.name, line.ratios["cold_sql"], line.cost.sql_ms) for line in pages]
    warm = [(line.name, line.ratios["warm_asked"], line.cost.sql_warm_ms) for line in pages]
    return [*found, _sql_aim("cold", cold), _sql_aim("warm", warm)]


def _sql_aim(
    state: str, pages: Sequence[tuple[str, float | None, float | None]]
) -> tuple[str, str, str]:
    """A page against the SQL that it asks itself in that state; see `LEAST_SQL_MS`."""
    known = [
        (n, ratio) for n, ratio, ms in pages if ratio is not None and (ms or 0) >= LEAST_SQL_MS
    ]
    dear = [f"{name} {ratio:.1f}×" for name, ratio in known if ratio > MOST_OF_SQL]
    aim = f"a {state} page costs at most {MOST_OF_SQL:g}× the bare SQL that it asks"
    seen = f"{len(known) - len(dear)} of {len(known)} pages{'; not ' if dear else ''}"
    seen += ", ".join(dear)
    left = len(pages) - len(known)
    if left:
        seen += f"; {left} not evaluated, which ask for less than {LEAST_SQL_MS:g} ms"
    return aim, seen, _word(not dear) if known else "not evaluated"


def load_data(
    seen: Seen, written: Written, readers: int, think_s: float, cpu: float
) -> dict[str, Any]:
    """What many readers and a writer saw, for the file."""
    times = Times.of(seen.took_ms) if seen.took_ms else Times(0, 0.0, 0.0, 0.0, 0.0)
    return {
        "readers": readers,
        "seconds": seen.seconds,
        "think_s": think_s,
        "requests": len(seen.took_ms) + len(seen.errors),
        "a_second": (len(seen.took_ms) + len(seen.errors)) / seen.seconds,
        "statuses": dict(seen.statuses),
        "errors": seen.errors[:20],
        "error_count": len(seen.errors),
        "not_ok": seen.not_ok,
        "server_faults": seen.server_faults,
        "lock_failures": seen.locked + len(written.locked),
        "took_ms": asdict(times),
        "in_flight": sum(seen.took_ms) / 1e3 / seen.seconds,
        "server_cpu": cpu,
        "by_route": {name: asdict(Times.of(ms)) for name, ms in sorted(seen.by_name.items())},
        "writer": writer_data(written),
    }


def writer_data(written: Written) -> dict[str, Any]:
    """What the writer did."""
    return {
        "cases": len(written.took_ms),
        "took_ms": asdict(Times.of(written.took_ms)) if written.took_ms else None,
        "locked": len(written.locked),
        "failed": written.failed[:20],
    }


def load_aims(load: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Nothing may go wrong."""
    wrong = load["error_count"] + load["not_ok"] + len(load["writer"]["failed"])
    clean = not wrong and not load["lock_failures"]
    aim = f"{load['readers']} readers and a writer for {load['seconds']:.0f} s: no error, no lock"
    seen = (
        f"{load['requests']} requests, {load['a_second']:.1f} a second; {load['error_count']} "
        f"errors, {load['not_ok']} answers that are not 200 ({load['server_faults']} from 500 "
        f"on), {load['lock_failures']} lock failures"
    )
    return [(aim, seen, _word(clean and load["requests"] > 0))]


def load_words(load: dict[str, Any]) -> str:
    """How quick it was."""
    took, writer = load["took_ms"], load["writer"]
    text = (
        f"{load['readers']} readers, {load['think_s']:g} s between an answer and the next request: "
        f"{load['in_flight']:.0f} requests in flight on average, {load['a_second']:.1f} answered a "
        f"second, p50 {took['p50']:.0f} ms, p95 {took['p95']:.0f} ms, p99 {took['p99']:.0f} ms, "
        f"most {took['most']:.0f} ms; the server used {load['server_cpu']:.0%} of a core"
    )
    return f"{text}\n{writer_words(writer)}"


def writer_words(writer: dict[str, Any]) -> str:
    """How the writer fared."""
    took = writer["took_ms"]
    if took is None:
        return "the writer stored nothing"
    return (
        f"the writer stored {writer['cases']} cases beside, p50 {took['p50']:.0f} ms, "
        f"p95 {took['p95']:.0f} ms; {writer['locked']} times locked out"
    )


@dataclass(frozen=True)
class Grown:
    """One route on a short and on a long history."""

    name: str
    kind: str
    short: Times
    long: Times

    @property
    def ratio(self) -> float:
        """How much more expensive the long one is."""
        return self.long.p50 / self.short.p50

    @property
    def evaluated(self) -> bool:
        """A page over all time has more to draw where there is more: that is no fault."""
        return self.kind != "wide"


def growth_table(grown: Sequence[Grown], short: str, long: str) -> str:
    """A line a route."""
    head = ("page or route", f"p50, {short}", f"p50, {long}", "ratio", "")
    body = [
        (
            one.name,
            f"{one.short.p50:.1f}",
            f"{one.long.p50:.1f}",
            f"{one.ratio:.2f}×",
            "" if one.evaluated else "more to draw",
        )
        for one in grown
    ]
    return table(head, body, markdown=False)


def growth_aims(grown: Sequence[Grown], short: str, long: str) -> list[tuple[str, str, str]]:
    """Every route that shows no more than before."""
    evaluated = [one for one in grown if one.evaluated]
    dear = [one for one in evaluated if one.ratio >= MOST_GROWTH]
    told = ", ".join(f"{one.name} {one.ratio:.2f}×" for one in dear)
    worst = max(evaluated, key=lambda one: one.ratio)
    seen = (
        f"{len(evaluated) - len(dear)} of {len(evaluated)}; most: {worst.name} {worst.ratio:.2f}×"
    )
    aim = f"from {short} to {long}: p50 grows less than {MOST_GROWTH:g}×"
    return [(aim, f"{seen}{'; not ' + told if told else ''}", _word(not dear))]


def aims_text(aims: Sequence[tuple[str, str, str]]) -> str:
    """All aims: the verdict, the aim, and below it what was seen."""
    lines = []
    for aim, seen, verdict in aims:
        lines.append(f"{verdict:<8} {aim}")
        lines.append(textwrap.fill(seen, 100, initial_indent=" " * 11, subsequent_indent=" " * 11))
    return "\n".join(lines)


def in_order(routes: Sequence[Route]) -> list[Route]:
    """Pages, then wide ones, then the API."""
    kinds = ("page", "wide", "api")
    return sorted(routes, key=lambda route: kinds.index(route.kind))


def _word(met: bool) -> str:
    return "met" if met else "not met"
