"""The public JSON: exact keys, strict values, faithful samples, and every key documented."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchstone import stats
from torchstone.records import (
    Calibration,
    Check,
    CompileCost,
    Environment,
    GitState,
    Level,
    Memory,
    OutcomeDetail,
    Peak,
    Pruning,
    Remeasurement,
    Verdict,
)
from torchstone.show.markdown import document, dumps

from . import synthetic_result as made

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
OPEN = {
    "cpu", "caches", "os", "python", "torch", "packages", "threads", "variables",
    "hidden_variables", "figures", "parameter_dtypes", "determinism", "costs",
}  # fmt: skip
TOP = [
    "schema",
    "id",
    "created",
    "kind",
    "command",
    "version",
    "arms",
    "comparisons",
    "checks",
    "method",
    "calibration",
    "clocks_hz",
    "remeasurements",
    "pruned",
    "sweep",
]
ARM = [
    "name",
    "outcome",
    "outcome_detail",
    "time",
    "memory",
    "compile",
    "contract",
    "agreement",
    "environment",
    "graphs",
    "flops",
    "faults",
    "noise",
    "notes",
    "spec",
]
TIME = [
    "unit",
    "floor",
    "floor_interval",
    "floor_processes",
    "typical",
    "typical_interval",
    "process_floors",
    "process_typicals",
    "fastest",
    "calls_per_sample",
    "calls",
    "processes",
    "turns",
    "samples",
    "slow",
]
COMPARISON = [
    "base",
    "new",
    "time_ratio",
    "speedup",
    "interval",
    "verdict",
    "floor",
    "typical",
    "decided_by",
    "margin",
    "threshold",
    "smallest_detectable",
    "deciding_budget_s",
    "reason",
]


def reject(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


def read(result: Any, **options: Any) -> Any:
    return json.loads(dumps(result, **options), parse_constant=reject)


def keys(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            if key not in OPEN or not isinstance(value, dict):
                yield from keys(value)
    elif isinstance(data, list):
        for value in data:
            yield from keys(value)


@pytest.mark.parametrize("name", made.ALL)
def test_same_shape_from_every_result(name: str) -> None:
    data = read(made.ALL[name]())
    assert list(data) == TOP
    assert data["schema"] == 1
    for arm in data["arms"]:
        assert list(arm) == ARM
        assert list(arm["outcome_detail"]) == (
            ["message", "phase", "signal", "exit_code", "stderr", "remedy", "strays_killed"]
        )
        assert list(arm["memory"]) == [
            "tensor_peak_bytes",
            "tensor_held_bytes",
            "overhead_bytes",
            "peak_bytes",
            "step_peak_bytes",
            "start_peak_bytes",
            "source",
        ]
        assert list(arm["faults"]) == ["minor_per_call"]
        assert arm["time"] is None or list(arm["time"]) == TIME
    assert all(list(c) == COMPARISON for c in data["comparisons"])
    assert all(list(c) == ["rule", "level", "message", "figures", "arms"] for c in data["checks"])


@pytest.mark.parametrize("name", made.ALL)
def test_text_and_data_say_the_same(name: str) -> None:
    result = made.ALL[name]()
    assert read(result) == read(result, indent=None) == document(result)
    assert dumps(result).isascii()


def test_samples_are_seconds_per_call_in_order() -> None:
    result = made.statement()
    time = document(result)["arms"][0]["time"]
    wall = [ns for turn in result.arms[0].turns for ns in turn.wall_ns]
    assert time["samples"] == pytest.approx([ns / 50e9 for ns in wall], rel=1e-12)
    assert time["calls_per_sample"] == 50
    assert time["calls"] == 50 * len(wall)
    assert sum(turn["samples"] for turn in time["turns"]) == len(wall)
    assert {turn["process"] for turn in time["turns"]} == {0, 1, 2}
    assert all(turn["minor_faults"] >= 0 for turn in time["turns"])
    assert time["processes"] == 3


def test_samples_beside_a_slow_probe_are_marked() -> None:
    arm = made.arm()
    first, *rest = arm.turns
    probes = tuple([1000] * (len(first.probe_ns) - 1) + [3000])
    slow = replace(first, probe_ns=probes)
    calm = [replace(turn, probe_ns=(1000,) * len(turn.probe_ns)) for turn in rest]
    time = document(made.result((replace(arm, turns=(slow, *calm)),)))["arms"][0]["time"]
    assert time["slow"]
    assert max(time["slow"]) == len(first.wall_ns) - 1
    assert len(time["slow"]) < len(first.wall_ns)


def test_figures_are_those_of_stats() -> None:
    arm = made.arm()
    time = document(made.result((arm,)))["arms"][0]["time"]
    floor, low, high = stats.absolute(arm, "floor", 0.95)
    assert time["floor"] == floor
    assert time["floor_interval"] == [low, high]
    assert time["typical"] == stats.absolute(arm, "typical", 0.95)[0]
    assert low < time["floor"] < high < time["typical_interval"][1]


def test_one_process_has_no_interval() -> None:
    lone = replace(made.arm(), turns=made.turns(1e-3, seed=1, processes=1))
    time = read(made.result((lone,)))["arms"][0]["time"]
    assert time["floor"] > 0
    assert time["floor_interval"] is None


def test_a_comparison_is_new_over_base() -> None:
    (found,) = document(made.two_faster())["comparisons"]
    assert (found["base"], found["new"], found["verdict"]) == ("eager", "inductor", "faster")
    assert found["time_ratio"] == 0.658
    assert found["speedup"] == pytest.approx(1 / 0.658)
    assert found["interval"] == pytest.approx([0.652, 0.664])
    assert found["floor"]["replicates"] == 3


def test_what_is_not_finite_is_null() -> None:
    broken = made.comparison("eager", "eager2", math.nan, math.inf, Verdict.CANNOT_TELL)
    check = Check("odd", Level.NOTE, "NaN is a word here", {"x": math.inf, "y": 1.0})
    result = made.result((made.arm(),), (broken,), (check,))
    data = read(result)
    assert data["comparisons"][0]["time_ratio"] is None
    assert data["comparisons"][0]["interval"] == [None, None]
    assert data["checks"][0]["figures"] == {"x": None, "y": 1.0}
    assert data["checks"][0]["message"] == "NaN is a word here"


def test_failures_keep_their_evidence() -> None:
    crash = document(made.four_with_failures())["arms"][1]
    assert crash["outcome"] == "crash"
    assert crash["time"] is None
    assert crash["noise"] is None
    assert crash["outcome_detail"]["signal"] == "SIGSEGV"
    assert crash["outcome_detail"]["exit_code"] == -11
    assert crash["outcome_detail"]["stderr"][0] == "Fatal Python error: Segmentation fault"


def test_cost_memory_faults_and_noise() -> None:
    eager, inductor = document(made.two_faster())["arms"]
    assert eager["compile"] is None
    assert inductor["compile"] == {
        "cold_s": 12.1,
        "warm_s": 2.3,
        "toolchain_s": 7.0,
        "first_call_s": 12.2,
    }
    assert inductor["memory"]["peak_bytes"] == 31 * made.MIB
    assert eager["faults"]["minor_per_call"] == 30
    assert eager["noise"]["cpu_per_wall"] == pytest.approx(1.9, rel=1e-6)
    assert eager["noise"]["wait_s"] == pytest.approx(24 * 20e-6)
    assert eager["noise"]["steal_s"] is None
    assert 0 < eager["noise"]["probe_slow_share"] < 1


def test_a_probe_is_slow_against_its_own_process() -> None:
    """One process in which the probe is a quarter faster does not make all others slow."""
    arm = made.arm()
    turns = tuple(
        replace(t, probe_ns=(100, 100, 100, 120) if t.replicate else (75, 75, 75, 75))
        for t in arm.turns
    )
    noise = document(made.result((replace(arm, turns=turns, probe_bits=64),)))["arms"][0]["noise"]
    assert noise["probe_slow_share"] == pytest.approx(0.25 * 2 / 3)
    assert noise["probe_floor_s"] == pytest.approx(75e-9)
    assert noise["probe_bits"] == 64


def test_notes_and_strays_are_told() -> None:
    detail = OutcomeDetail("killed by SIGSEGV", strays_killed=2)
    arm = replace(made.arm(), notes=("tried again alone",), detail=detail)
    told = document(made.result((arm,)))["arms"][0]
    assert told["notes"] == ["tried again alone"]
    assert told["outcome_detail"]["strays_killed"] == 2


def test_lone_surrogates_do_not_make_bad_json() -> None:
    result = made.result((made.arm("a\udc80b"),))
    text = dumps(result)
    assert json.loads(text)["arms"][0]["name"] == "a\\udc80b"


def test_lists_of_numbers_take_one_line() -> None:
    lines = dumps(made.single()).splitlines()
    assert len(lines) < 288  # there are so many samples alone
    assert sum('"samples": [' in line for line in lines) == 1


def test_every_key_is_documented() -> None:
    pages = (PAGE, PAGE.with_name("contract.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    known = set(re.findall(r"`([a-z_]+)`", text))
    full = replace(
        made.compiled(),
        environment=Environment("m", git=GitState("abc")),
        compile=CompileCost(1),
        memory=Memory("VmHWM"),
    )
    evaluated = replace(
        made.result((full,)),
        calibration=Calibration("c", "m", "f", "2026", compute=(Peak(1.0),), clock=Peak(1.0)),
        remeasurements=(Remeasurement("eager", "inductor", 1, 3.0, 3.1),),
        pruned=Pruning("2026", ("torchstone", "db", "thin"), "0.1", 7, "ab"),
    )
    results = [*(build() for build in made.ALL.values()), evaluated]
    emitted = {key for result in results for key in keys(document(result))}
    assert len(emitted) > 90
    assert emitted - known == set()
