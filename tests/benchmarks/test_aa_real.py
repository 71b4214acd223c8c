"""Real models: exact effects, a fair order, and the usual ways evaluated as they say."""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aa_models import CALLS, KNOWN, MODELS, environment, log_truth
from aa_real import batches, bench_options, parser, report, schedule
from aa_real_record import Setup, arms_of, can_be_together
from aa_usual import alternating, bootstrap, torch_verdict

import torchstone
from tests.benchmarks.support import run, trial


def asked(*words: str) -> argparse.Namespace:
    return parser().parse_args(list(words))


def test_effects_are_exact() -> None:
    for effect, (base, new) in CALLS.items():
        assert new / base - 1 == pytest.approx(effect / 100, abs=5e-4)
    assert log_truth("bert", 5) == math.log(21 / 20)
    assert {MODELS[name].truth(0) for name in MODELS} == {1.0}
    assert len(KNOWN) == 5


def test_arms_differ_in_the_target_alone() -> None:
    base, new = arms_of(Setup("deit", 2, allocator="default"), 10, seed=7)
    assert base.target.endswith("aa_vision.py:make_base")
    assert new.target.endswith("aa_vision.py:make_slower")
    assert (base.env, base.threads, base.allocator) == (new.env, 2, "default")
    assert dict(base.env) == environment("deit", 10, 2)
    whole = arms_of(Setup("whole-dcgan", 1), 0, seed=7)
    assert {arm.target for arm in whole} == {"torchbench:dcgan@small"}
    assert {arm.mode for arm in whole} == {"training"}


def test_trials_are_in_step_and_ours_come_first() -> None:
    order = schedule(asked("live", "--trials", "30", "--peer-trials", "15"))
    assert order == schedule(asked("live", "--trials", "30", "--peer-trials", "15"))
    assert len(set(order)) == len(order) == 2 * 2 * (30 + 3 * 15)
    assert [(one.tool, one.model) for one in order[:2]] == [("ours", "bert"), ("ours", "mobilenet")]
    half = Counter((one.tool, one.model, one.effect) for one in order[: len(order) // 2])
    assert {abs(n - (15 if key[0] == "ours" else 7.5)) <= 2 for key, n in half.items()} == {True}
    assert sum(a.tool != b.tool for a, b in itertools.pairwise(order)) > len(order) // 3


def test_every_condition_gets_its_batches(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("record", "--models", "bert,whole-bert", "--together", "no")
    plan = batches(asked(*words, "--allocators", "keep,default", "--default-models", "bert"))
    counts = Counter((one.setup, one.effect) for one in plan)
    assert set(counts.values()) == {2}  # twelve replicates, six a batch
    keys = {(s.model, s.threads, s.allocator, effect) for s, effect in counts}
    assert keys == {
        *itertools.product(["bert"], [1, 2], ["keep", "default"], CALLS),
        *itertools.product(["whole-bert"], [1, 2], ["keep"], [0]),
    }
    together = {one.setup.together for one in batches(asked("record", "--together", "both"))}
    assert together == ({False, True} if can_be_together() else {False})
    assert ("left out" in capsys.readouterr().err) is not can_be_together()


def test_options_that_bench_does_not_have_are_refused() -> None:
    assert bench_options("keep", together=False)["allocator"] == "keep"
    if "together" in inspect.signature(torchstone.bench).parameters:
        assert bench_options(None, together=True)["together"] is True
        return
    with pytest.raises(SystemExit, match="no option 'together'"):
        bench_options(None, together=True)


def test_recorded_batches_are_skipped_and_failed_ones_are_not(tmp_path: Path) -> None:
    words = ("record", "--models", "gpt2", "--effects", "0,5", "--threads", "1", "--together", "no")
    words += ("--replicates", "12", "--batch", "6", "--out", str(tmp_path / "pools.jsonl"))
    pin = {"kind": "pin", "name": "record", "value": {"batch": 6, "seconds": 3.75}}
    rows: list[dict[str, Any]] = [pin]
    for number, one in enumerate(batches(asked(*words))):
        row = {"kind": "replicates", **asdict(one.setup), "effect": one.effect}
        found = {"error": "it died"} if number == 1 else {"raw": []}
        rows.append({**row, "trial": one.number, **found})
    rows[-1]["kind"] = "disturbed"
    (tmp_path / "pools.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("aa_real.py", *words, "--max-minutes", "0")
    assert done.returncode == 0, done.stderr
    assert "2 left for the next run" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("live", "--models", "whole-bert"), ("live", "--effects", "2"), ("record", "--models", "x")],
)
def test_a_wrong_name_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        asked(*words)
    assert refused.value.code == 2
    assert "is none of" in capsys.readouterr().err


def times(ratio: float, seed: int, count: int = 30) -> tuple[list[float], list[float]]:
    chance = np.random.default_rng(seed)
    base, new = (chance.lognormal(0.0, 0.02, count) * scale for scale in (0.03, 0.03 * ratio))
    return base.tolist(), new.tolist()


def test_the_bootstrap_interval_covers_as_often_as_it_says() -> None:
    found = [bootstrap(*times(1.0, seed), seed=seed) for seed in range(200)]
    covered = sum(low <= 1.0 <= high for low, high in (one["interval"] for one in found))
    assert 175 <= covered <= 199
    assert {one["verdict"] for one in found} >= {"no difference"}
    slower = bootstrap(*times(1.05, 0), seed=0)
    assert (slower["verdict"], bootstrap(*times(0.95, 0), seed=0)["verdict"]) == (
        "slower",
        "faster",
    )
    assert slower["ratio"] == pytest.approx(1.05, abs=0.02)
    assert slower["interval"][0] < slower["ratio"] < slower["interval"][1]


def test_blocks_are_compared_by_their_ranks() -> None:
    assert torch_verdict(*times(1.05, 1))["verdict"] == "slower"
    base, _ = times(1.0, 1)
    assert torch_verdict(base, base)["verdict"] == "no difference"


def test_steps_alternate_and_warm_ups_are_apart() -> None:
    calls: list[str] = []
    steps = [lambda: calls.append("base"), lambda: calls.append("new")]
    found = alternating(steps, 3, until=0.0)
    assert [len(one) for one in found] == [3, 3]
    assert calls == ["base"] * 5 + ["new"] * 5 + ["base", "new"] * 3


def planted(model: str, load: bool = False) -> list[dict[str, Any]]:
    rows = []
    for i in range(30):
        rows.append(trial("ours", 0, i, "same", 1.001, (0.98, 1.02), load))
        rows.append(trial("ours", 5, i, "slower" if i < 27 else "same", 1.05, (1.01, 1.09), load))
    for i in range(15):
        verdict = "slower" if i < 6 else "no difference"
        rows.append(trial("usual", 0, i, verdict, 1.03, (1.01, 1.05), load))
    return [{**row, "model": model} for row in rows]


def test_the_report_has_every_model_all_of_them_and_the_aims(tmp_path: Path) -> None:
    pin = {"kind": "pin", "name": "live", "value": {"budget": 10.0}}
    rows = [pin, *planted("bert"), *planted("mobilenet")]
    text = report(rows)
    assert "bert, x1" in text
    assert "usual, 30 repeats" in text
    assert "40% (6/15; 16%–68%)" in text
    assert {"bert, x1", "mobilenet, x1", "all"} <= {
        line.split("  ")[0] for line in text.splitlines()
    }
    aims = [line for line in text.splitlines() if "found at least 80%" in line]
    assert [line.split()[-1] for line in aims] == ["met*"] * 3
    wide = [line for line in text.splitlines() if "half-width at most 3.0%" in line]
    assert [line.split("  ")[-1] for line in wide] == ["met", "not met"] * 3
    file = tmp_path / "live.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("aa_real.py", "report", str(file)).stdout.rstrip("\n") == text


@pytest.mark.slow
@pytest.mark.parametrize("model", KNOWN)
def test_arms_of_a_model_give_the_same_answer(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from aa_models import ready

    for name, value in environment(model, 10, 1).items():
        monkeypatch.setenv(name, value)
    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    try:
        base, slower = (step() for step in ready())
    finally:
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
    pairs = zip(base, slower, strict=True) if isinstance(base, tuple) else [(base, slower)]
    assert all(torch.equal(one, other) for one, other in pairs)
