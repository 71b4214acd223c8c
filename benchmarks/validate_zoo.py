"""Do the checks catch bad measurements, and leave honest ones alone?

    validate_zoo.py [--records-only] [--json FILE] [--only WORD] [--verbose]

Each row is a measurement. *Real* ones are run here and now: arms that cheat or are honest, in real
processes. *Records* are a stored measurement with one fault, or none, planted into it. A bad one is
caught when the rules that it names speak at the level that it names, and in a record no other; an
honest one is left alone when no rule warns or fails. On a busy machine rules about the machine
speak of real arms with good reason: they stand in a column of their own. Exit code 1 if anything is
missed or falsely alarmed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from aa_report import table
from zoo_entry import Entry, Seen, look
from zoo_honest import honest
from zoo_planted import planted

SHARE = 0.01
"""The aim: evaluating takes less than this share of a run's wall time."""
SHORT_RUN_S = 8.0
"""A short run, against which evaluating is held; most take longer."""


def report(seen: Sequence[Seen], verbose: bool) -> str:
    """The table, then the sums."""
    rows = [
        (
            one.word,
            one.name,
            one.kind,
            ", ".join(one.wanted) or "–",
            ", ".join(one.said) or "–",
            ", ".join(one.weather),
        )
        for one in sorted(seen, key=lambda one: one.honest)
    ]
    head = ("", "measurement", "kind", "wanted", "said", "of the machine")
    lines = [table(head, rows, markdown=False), "", *sums(seen)]
    for one in seen:
        if verbose or not one.right:
            lines += [f"\n{one.name}: {one.word} {', '.join(one.missing + one.alarms)}".rstrip()]
            lines += [f"    {message}" for message in one.messages]
    return "\n".join(lines)


def sums(seen: Sequence[Seen]) -> list[str]:
    bad, good = [s for s in seen if not s.honest], [s for s in seen if s.honest]
    caught = sum(not s.missing for s in bad)
    alone = sum(not s.alarms and not s.missing for s in good)
    lines = [
        f"bad: {len(bad)} ({_kinds(bad)}), caught {caught}, missed {len(bad) - caught}, "
        f"with a false alarm beside it {sum(bool(s.alarms) for s in bad)}",
        f"honest: {len(good)} ({_kinds(good)}), left alone {alone}, "
        f"false alarms {len(good) - alone}",
    ]
    times = [s.judge_s for s in seen]
    if times:
        share = statistics.median(times) / SHORT_RUN_S
        lines.append(
            f"evaluating: {1e3 * statistics.median(times):.1f} ms a result (median), "
            f"{1e3 * max(times):.1f} ms (worst); {share:.2%} of a run of {SHORT_RUN_S:.0f} s"
        )
    return lines


def _kinds(seen: Sequence[Seen]) -> str:
    real = sum(s.kind == "real" for s in seen)
    return f"{real} real, {len(seen) - real} records"


def record_entries() -> tuple[Entry, ...]:
    return (*planted(), *honest())


def main(words: Sequence[str] | None = None) -> int:
    """Look at every entry; say how it went."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records-only", action="store_true", help="run nothing")
    parser.add_argument("--only", default="", help="entries whose name has this word")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what was seen, as JSON")
    parser.add_argument("--verbose", action="store_true", help="what was said, in full")
    args = parser.parse_args(words)
    entries = record_entries()
    if not args.records_only:
        from zoo_real import real_entries

        entries = (*real_entries(), *entries)
    seen = [look(entry) for entry in entries if args.only in entry.name]
    print(report(seen, args.verbose))
    if args.json:
        rows = [{**asdict(one), "right": one.right} for one in seen]
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(one.right for one in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
