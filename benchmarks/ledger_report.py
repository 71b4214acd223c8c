"""What the benchmark of the ledger prints: truth and ledger side by side, and each missed aim."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from aa_journal import Row
from ledger_faults import PLANTED

MOST_POINTS = 0.05
MOST_REST = 0.05
MOST_WALL = 0.05
LEAST_LANDED = 8


def report(rows: Sequence[Row]) -> None:
    """Both tables, and how many figures are outside the aims."""
    ledgers = [row for row in rows if row["kind"] == "ledger"]
    tests = {row["name"]: row for row in rows if row["kind"] == "verify"}
    bad = _compositions(ledgers)
    if tests:
        _predictions(tests)
    if ledgers:
        aims = f"{MOST_POINTS:.0%} points, {MOST_REST:.0%} rest, {MOST_WALL:.0%} of the wall time"
        print(f"{bad} figures outside the aims ({aims}).")


def _compositions(ledgers: Sequence[Row]) -> int:
    """One line for each part; how many figures are outside their aims."""
    bad = 0
    if ledgers:
        print(f"\n{'workload':20} {'lines':42} {'planted':>8} {'ledger':>8} {'points':>7}")
    for one in ledgers:
        if "error" in one or "skipped" in one:
            print(f"{one['name']:20} {one.get('error') or one['skipped']}")
            bad += "error" in one
            continue
        for lines, truth, found in one["shares"]:
            off = found - truth
            bad += abs(off) > MOST_POINTS
            mark = " <--" if abs(off) > MOST_POINTS else ""
            print(f"{one['name']:20} {lines:42} {truth:8.1%} {found:8.1%} {100 * off:+7.1f}{mark}")
        bad += _sums(one)
    return bad


def _sums(one: Row) -> int:
    """What the lines leave, and whether all the others are the step with nobody looking; how many
    of the two are outside their aims. Where processes with nobody looking differ among themselves,
    the lines must be near one of them."""
    walls = sorted(one["walls"])
    usual = statistics.median(walls)
    off = one["explained"] / usual - 1
    far = all(abs(one["explained"] / wall - 1) > MOST_WALL for wall in walls)
    marks = [" <--" if bad else "" for bad in (abs(one["rest"]) > MOST_REST, far)]
    print(
        f"{'':20} rest {one['rest']:.1%}{marks[0]}; waited for a core {one['contention']:.1%}; "
        f"all lines but these {1e3 * one['explained']:.2f} ms, unprofiled {1e3 * usual:.2f} ms "
        f"({1e3 * walls[0]:.2f} to {1e3 * walls[-1]:.2f} in {len(walls)} processes; "
        f"{100 * off:+.1f} %){marks[1]}"
    )
    return sum(map(bool, marks))


def _predictions(tests: dict[str, Row]) -> None:
    head = f"{'predicted':>13} {'width':>6} {'measured':>9} {'interval':>11}  held"
    print(f"\n{'planted':16} {'finding':22} {head}")
    held = landed = tested = 0
    widths: list[float] = []
    for name in (name for name in PLANTED if name in tests):
        one = tests[name]
        if "error" in one or "skipped" in one:
            print(f"{name:16} {one.get('error') or one.get('skipped')}")
            continue
        tested += 1
        if not one["found"]:
            print(f"{name:16} {one['wanted']:22} not found; found {', '.join(one['findings'])}")
            continue
        held += one["held"] is True
        low, high = one["predicted"]
        landed += one["measured"] is not None and low <= one["measured"] <= high
        widths.append(high - low)
        _prediction(name, one)
    print(
        f"\n{landed} of {tested} land inside the predicted range; the aim is {LEAST_LANDED} of "
        f"{len(PLANTED)}. Of {held} the whole interval does."
    )
    if widths:
        print(f"The ranges are {statistics.median(widths):.2f} wide, the middle one of them.")


def _prediction(name: str, one: Row) -> None:
    low, high = one["predicted"]
    shown = "-" if one["measured"] is None else f"{one['measured']:.2f}"
    ends = one.get("interval")
    spread = f"{ends[0]:.2f}–{ends[1]:.2f}" if ends else "-"
    print(
        f"{name:16} {one['wanted']:22} {low:8.2f}–{high:.2f} {high - low:6.2f} {shown:>9} "
        f"{spread:>11}  {one['held']}"
    )
    if one["measured"] is None:
        print(f"{'':16} {one['sentence']}")
