"""The cost of measuring: ratios are of like with like, and the aims are evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from overhead import (
    BARE,
    Cost,
    aims,
    costs,
    imported_by_help,
    our_statement,
    start_commands,
    start_costs,
    step_costs,
)

from tests.benchmarks.support import run


def test_ratios_are_taken_within_a_round() -> None:
    base, other = costs("x", {"base": [1.0, 2.0, 4.0, 8.0], "other": [3.0, 4.0, 8.0, 16.0]})
    assert (base.ratio, base.typical_ratio, base.quartiles) == (1.0, 1.0, (1.0, 1.0))
    assert (other.floor_s, other.ratio) == (3.0, 3.0)
    assert (other.typical_ratio, other.quartiles) == (2.0, (2.0, 3.0))


def test_a_heavier_statement_costs_more() -> None:
    empty, heavy = our_statement("pass", 1000), our_statement("sum(range(100))", 1000)
    assert 0 < 10 * min(empty() for _ in range(5)) < min(heavy() for _ in range(5))


def test_an_empty_step_is_timed_three_ways() -> None:
    found = step_costs(500, 5)
    assert [cost.name for cost in found] == [
        "bare loop",
        "torchstone, in blocks",
        "torchstone, one call a sample",
    ]
    assert all(cost.floor_s is not None and 0 < cost.floor_s < 1e-4 for cost in found)


def test_starts_are_compared_with_the_bare_interpreter() -> None:
    found = {cost.name: cost for cost in start_costs(1)}
    assert next(iter(found)) == BARE
    assert set(found) == set(start_commands())
    ratio = found["torchstone --help"].ratio
    assert ratio is not None
    assert ratio > 1.0
    for name, command in start_commands().items():
        assert (found[name].note == "not installed") == (command is None)


def test_help_imports_nothing_heavy() -> None:
    assert imported_by_help() == []


def test_aims_are_judged_on_the_ratio() -> None:
    def verdicts(statement: float, start: float, imported: list[str]) -> list[bool]:
        found = [
            Cost("s", "torchstone timeit", ratio=statement),
            Cost("u", "torchstone --help", ratio=start),
        ]
        return [aim.met for aim in aims(found, imported)]

    assert verdicts(1.1, 3.9, []) == [True, True, True]
    assert verdicts(1.11, 4.0, ["numpy"]) == [False, False, False]


@pytest.mark.slow
def test_the_whole_command(tmp_path: Path) -> None:
    out = tmp_path / "overhead.json"
    done = run("overhead.py", "--quick", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "empty statement within 1.1x of timeit" in done.stdout
    data = json.loads(out.read_text())
    assert len(data["aims"]) == 3
    assert {cost["group"] for cost in data["costs"]} == {
        "empty statement",
        "empty step",
        "start-up",
    }
