"""Runs in the peers' environment: what asv, Otava and Perfherder's rule find in the same series.

Perfherder's rule is written from its description: five tests of up to 24 values before a place
against 12 from it on (Student's t above 5 with 1 %; Welch, Mann and Whitney, Kolmogorov and
Smirnov, Cramér and von Mises with p below 0.005 and 3 %); three that agree within one push are an
alert.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

BACK, LEAST_BACK, FORE = 24, 12, 12
AGREE = 3


def detect(path: str) -> dict[str, list[list[int]]]:
    """The places of changes, by tool."""
    from asv.step_detect import detect_steps
    from otava.analysis import compute_change_points

    many = json.loads(Path(path).read_text())
    return {
        "asv": [[int(step[0]) for step in detect_steps(one)[1:]] for one in many],
        "otava": [[int(cp.index) for cp in compute_change_points(one)[0]] for one in many],
        "perfherder 3 of 5": [perfherder(one) for one in many],
    }


def perfherder(values: list[float]) -> list[int]:
    """Alerts: runs of agreeing places count once, where Student's t is largest."""
    flags: list[set[int]] = [set() for _ in values]
    sizes = [0.0] * len(values)
    for place in range(LEAST_BACK, len(values) - FORE + 1):
        old, new = values[max(0, place - BACK) : place], values[place : place + FORE]
        flags[place], sizes[place] = _tests(old, new)
    agreed = [
        len(set().union(*flags[max(0, place - 1) : place + 2])) >= AGREE
        for place in range(len(values))
    ]
    found, run = [], []
    for place, yes in enumerate([*agreed, False]):
        if yes:
            run.append(place)
        elif run:
            found.append(max(run, key=lambda one: sizes[one]))
            run = []
    return found


def _tests(old: list[float], new: list[float]) -> tuple[set[int], float]:
    from scipy import stats

    a, b = sum(old) / len(old), sum(new) / len(new)
    effect = abs(b / a - 1.0) if a else 0.0
    if effect < 0.01:
        return set(), 0.0
    t = abs(float(stats.ttest_ind(old, new).statistic))
    found = {0} if t > 5 else set()
    if effect >= 0.03:
        values = (
            stats.ttest_ind(old, new, equal_var=False).pvalue,
            stats.mannwhitneyu(old, new).pvalue,
            stats.ks_2samp(old, new).pvalue,
            stats.cramervonmises_2samp(old, new).pvalue,
        )
        found |= {number for number, p in enumerate(values, 1) if p < 0.005}
    return found, t


def load(tree: str) -> dict[str, Any]:
    """asv's own load of a results folder."""
    from asv.results import iter_results

    folder = Path(tree, "results") if Path(tree, "results").is_dir() else Path(tree)
    start, cpu, values = time.perf_counter(), time.process_time(), 0
    for result in iter_results(str(folder)):
        for name in result.get_all_result_keys():
            values += len(result.get_result_value(name, result.get_result_params(name)) or ())
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "values": values,
    }


if __name__ == "__main__":
    print(json.dumps({"detect": detect, "load": load}[sys.argv[1]](sys.argv[2])))
