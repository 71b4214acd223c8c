"""The benchmarks of check, bisect and changes of level count what they say they count."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import aa_runs
import bisect_rates
import changepoints
import numpy as np
import pytest
from aa_real_pools import Replicate
from aa_real_record import Setup
from check_rates import report

from torchstone.records import Verdict


def test_a_step_is_found_only_near_its_place() -> None:
    many, wanted = changepoints.series_of("step 3σ", 100, 4, 0)
    assert many.shape == (4, 100)
    places = [low + changepoints.NEAR for low, _ in wanted]
    assert changepoints.hits([[one] for one in places], wanted) == 4
    assert changepoints.hits([[one + changepoints.NEAR + 1] for one in places], wanted) == 0
    assert changepoints.series_of("normal", 100, 4, 0)[1] == []
    assert changepoints.hits([[], [5], [5, 9], []], []) == 2


def test_finished_kinds_are_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changepoints, "SIZES", (30,))
    out = tmp_path / "rates.jsonl"
    asked = argparse.Namespace(trials=2, seed=0, peers="", peer_trials=0, out=str(out))
    rates = changepoints.simulate(asked)
    assert len(rates) == len(out.read_text().splitlines()) == len(changepoints.NOISES) + 4
    monkeypatch.setattr(changepoints, "find_changes", lambda _: pytest.fail("again"))
    assert changepoints.simulate(asked) == rates


def pools(sigma: float) -> aa_runs.Pools:
    lot = np.random.default_rng(0)

    def one() -> Replicate:
        base, new = 0.02 * np.exp(lot.normal(0, sigma, (2, 40)))
        return Replicate(base, new, np.arange(40), 0.0)

    return {Setup(f"m{i}", 1): [one() for _ in range(6)] for i in range(aa_runs.MODELS)}


def test_the_model_that_is_slower_is_called_so_and_no_other() -> None:
    found = list(aa_runs.called(pools(0.002), 0.10, random.Random(0)).values())
    assert found[0] is Verdict.SLOWER
    assert not any(one is not None and one.different for one in found[1:])


def test_a_simulated_search_knows_whether_it_was_right() -> None:
    history = bisect_rates.History(bisect_rates.SETTINGS[0], np.random.default_rng(1))
    found = bisect_rates.search(history)
    assert (found["answer"], found["right"]) == ("one", True)
    assert found["stated"] >= bisect_rates.CONFIDENCE


def test_answers_are_counted_by_their_first_words(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"method": "torchstone", "change": 0.0, "load": True, "trial": 0, "wall_s": 9.0}
    answers = ("slower", "not slower", "not slower", "cannot tell", "error 2: no")
    report([{**row, "answer": one} for one in answers])
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("| +0% | one core busy | torchstone | 5 | 1 (")
    assert line.endswith("| 2 | 1 | 1 | 9 s |")
