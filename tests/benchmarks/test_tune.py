"""The benchmarks of `tune`: what they plant is there, and what they count is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import tune_real
import tune_rivals
import tune_zoo

from tests.tuning.made import tuning
from torchstone.explain.findings.base import known_findings
from torchstone.variants.techniques import TECHNIQUES
from torchstone.workloads import check_target


def test_every_target_and_technique_of_the_zoo_is_there() -> None:
    planted = [one for one in tune_zoo.ENTRIES if one.well]
    assert len(planted) >= 15
    assert len(tune_zoo.ENTRIES) - len(planted) >= 5
    titles = {getattr(one, "title", "") for one in known_findings()}
    for entry in tune_zoo.ENTRIES:
        assert set(entry.findings) <= titles, entry.name
        for name in filter(None, (entry.target, entry.well, entry.metric)):
            check_target(tune_zoo.target(name))
        assert set(entry.remedies) <= set(TECHNIQUES), entry.name
        assert set(entry.few) <= set(TECHNIQUES), entry.name


def test_a_wrong_adoption_and_a_miss_are_counted() -> None:
    good = tune_zoo.Row("a", True, True, ("compile",), speedup=2.0, hand=2.0, share=1.0)
    missed = replace(good, name="b", found=False, adopted=(), share=0.0)
    wrong = replace(good, name="c", planted=False, wrong="slower: 0.9 times as fast")
    text = tune_zoo.report([good, missed, wrong])
    assert "remedy found or named: 1 of 2" in text
    assert "at least 80 % of the gain by hand: 1 of 2" in text
    assert "left alone: 0 of 1" in text
    assert "wrong adoptions: 1" in text


def test_the_planted_techniques_are_installed_as_a_package_would(tmp_path: Path) -> None:
    place = tune_rivals.plugins(tmp_path / "site")
    compile((place / "planted_techniques.py").read_text(), "planted", "exec")
    compile(tune_rivals.THEIRS, "theirs", "exec")
    text = (place / "planted-1.0.dist-info" / "entry_points.txt").read_text()
    assert "planted_zeros = planted_techniques:ZEROS" in text


def test_trials_are_half_of_each_kind_for_both_tools() -> None:
    trials = tune_rivals.planned(40, gain=False)
    ours = [one for one in trials if one.tool == "torchstone"]
    assert len(ours) == 40
    assert sum(one.planted == tune_rivals.ZEROS for one in ours) == 20
    assert len({one.key for one in trials}) == 80
    adopted = tune_rivals.made(ours[0], True, None, 1.0, "")
    assert "adopted 1 of 1" in tune_rivals.report([adopted])


def test_models_are_of_the_suites_and_the_report_counts() -> None:
    assert len(tune_real.MODELS) == 10
    for model in tune_real.MODELS:
        check_target(model)
    row = tune_real.Row("x", tuning().adopted, 1.6, 1.2, 1.58, True, True)
    text = tune_real.report([row, replace(row, model="y", not_worse=False, reproduced=False)])
    assert "not worse than the better of both: 1 of 2" in text
    assert "recipe reproduced: 1 of 2" in text
    assert json.loads(json.dumps(row.__dict__))["model"] == "x"
