"""What a suite costs: failures of our own are counted, and only like is compared with like."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import suite_cost
from suite_cost import report
from suite_ours import figures, suite_file, withheld


def case(way: str, variant: str, index: int, wall_s: float, **found: Any) -> dict[str, Any]:
    row = {"way": way, "target": "timm:a", "variant": variant, "round": index, "wall_s": wall_s}
    return {**row, "outcome": "ok", **found}


PHANTOM = {"withheld": ["identical"], "effect": 0.05}
ROWS = [
    case("ours", "eager", 0, 40, speedup=1.001, verdict="same"),
    case("ours", "eager", 1, 40, **PHANTOM),
    case("ours", "eager", 2, 40, speedup=0.998, verdict="cannot tell"),
    case("ours", "inductor", 0, 60, speedup=1.5, verdict="faster"),
    case("ours", "inductor", 1, 60, speedup=1.5, verdict="faster"),
    case("ours", "inductor", 2, 60, withheld=["output-check"]),
    case("usual", "eager", 0, 20, speedup=1.02),
    case("usual", "eager", 1, 20, speedup=1.01),
    case("usual", "eager", 2, 20, speedup=1.10),
    case("usual", "inductor", 0, 30, speedup=1.4),
    case("usual", "inductor", 1, 5, outcome="fail_accuracy"),
    case("usual", "inductor", 2, 30, speedup=1.6),
]


def line(beginning: str) -> str:
    return next(text for text in report(ROWS).splitlines() if text.startswith(beginning))


def test_identical_arms_that_were_called_different_are_counted() -> None:
    said = line("ours: ")
    assert "3 identical pairs off by 0.20% (median), 4.88% (worst)" in said
    assert "called different 1 of 3" in said
    assert "1 more without a figure (output-check)" in said
    assert "(withheld: 4.88% off)" in report(ROWS)


def test_what_a_case_costs_is_compared_where_both_ways_ended_well() -> None:
    assert line("ended well by both ways: ") == "ended well by both ways: 3 of 6 cases"
    assert line("ours: ").startswith("ours: 47 s a case")  # 40, 40, 60
    assert line("usual: ").startswith("usual: 23 s a case")  # 20, 20, 30; not the 5 of a failure
    assert "3 identical pairs off by 1.98% (median), 9.53% (worst); no verdicts" in line("usual: ")


def test_where_coverage_differs_is_said() -> None:
    assert line("coverage differs: ours").endswith(
        "ours alone does not end well in timm:a eager (round 2: withheld by identical), "
        "timm:a inductor (round 3: withheld by output-check)"
    )
    assert line("coverage differs: usual").endswith("timm:a inductor (round 2: fail_accuracy)")


def test_the_spread_of_identical_arms_is_about_one_and_has_the_worst() -> None:
    cell = [row for row in ROWS if (row["way"], row["variant"]) == ("ours", "eager")]
    off = [math.log(1.001), math.log(1.05), math.log(0.998)]
    wanted = math.sqrt(sum(x * x for x in off) / 3)
    assert suite_cost.spread(cell, identical=True) == f"{wanted:.2%}"
    assert suite_cost.spread(cell[:1], identical=True) == "–"


def test_cases_of_one_way_alone_are_not_compared() -> None:
    text = report(ROWS[:1])
    assert "ended well by both ways: 0 of 0 cases" in text
    assert "ours: no case to compare; 1 identical pairs" in text


@pytest.mark.parametrize(
    ("checks", "found"),
    [
        ([], {"withheld": []}),
        (
            [
                {"rule": "identical", "level": "fail", "figures": {"effect": 0.03}},
                {"rule": "noise", "level": "warn", "figures": {}},
            ],
            {"withheld": ["identical"], "effect": 0.03},
        ),
        (
            [{"rule": "output-check", "level": "fail", "figures": {}}],
            {"withheld": ["output-check"]},
        ),
    ],
)
def test_why_a_figure_was_withheld(checks: list[Any], found: dict[str, Any]) -> None:
    assert withheld({"checks": checks}) == found


def test_costs_and_errors_are_shown_as_multiples_of_the_usual_way() -> None:
    off = [math.log(1.001), math.log(1.05), math.log(0.998)]
    usual = [math.log(1.02), math.log(1.01), math.log(1.10)]
    errors = math.sqrt(sum(x * x for x in off) / sum(x * x for x in usual))
    (said,) = [text for text in report(ROWS).splitlines() if "usual way's" in text]
    assert said == (
        "ours: cost 2.00x the usual way's, "  # 40, 40, 60 to 20, 20, 30
        f"root mean square error on identical arms {errors:.2f}x"
    )


def test_where_the_time_goes_is_said_where_the_results_tell() -> None:
    assert "where a case's" not in report(ROWS)
    rows = [
        case("ours", "eager", 0, 40, speedup=1.0, phases={"import": 20.0, "turns": 10.0}),
        case("ours", "eager", 1, 60, speedup=1.0, phases={"import": 30.0}),
    ]
    assert "where a case's 50.0 s go (ours, 2 cases): import 25.0 s (50%), " in report(rows)
    assert "the rest 20.0 s (40%), turns 5.0 s (10%)" in report(rows)


def test_a_suite_of_targets_is_read_back(tmp_path: Path) -> None:
    from torchstone.workloads.suites.files import read_suite_file

    targets = ["hf:BertForMaskedLM@small", "torchbench:dcgan@small"]
    path = tmp_path / "suite.toml"
    path.write_text(suite_file(targets))
    assert [model.target for model in read_suite_file(str(path)).models()] == targets


def test_a_case_of_a_run_keeps_its_figure_and_verdict() -> None:
    told = {"outcome": "ok", "speedup": 1.1, "speedup_low": 1.0, "speedup_high": 1.2}
    assert figures({**told, "verdict": "faster"}, None) == {
        "outcome": "ok",
        "phases": {},
        "speedup": 1.1,
        "interval": [1.0, 1.2],
        "verdict": "faster",
    }
    assert figures({"outcome": "crash", "speedup": None}, None) == {
        "outcome": "crash",
        "phases": {},
        "withheld": [],
    }
