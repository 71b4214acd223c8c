"""`torchstone db` as functions: real databases, and what other commands say to thinned results."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.structure.places import ROOT
from torchstone.lab.database import prune, rebuild, size, validate_stored
from torchstone.lab.metrics import metrics_of
from torchstone.lab.repro import repro
from torchstone.records import CaseKey, Contract, PlannedCase, Result, Run, UsageError
from torchstone.show.markdown import dumps
from torchstone.show.terminal import report
from torchstone.store import open_store

sys.path.insert(0, str(ROOT / "tests" / "store"))

from store_cases import make_result

COMMAND = ("torchstone", "db", "prune", "--older-than", "90d")
KEYS = [CaseKey("timm", model, "small", "inference", "fp32", "inductor") for model in "AB"]
RUN = Run(
    "old",
    "2020-01-01T00:00:00+00:00",
    ("torchstone", "run"),
    tuple(PlannedCase(key, "timm:x@small") for key in KEYS),
)


def silent(what: str, done: int, total: int) -> None:
    """Nobody asked."""


def evaluated(result_id: str) -> Result:
    """A result as a run leaves it, evaluated by the rules of today."""
    from torchstone.lab.peaks import evaluate_again

    made = make_result(result_id, replicates=3, turns=6)
    arms = tuple(replace(arm, contract=_plain(arm.contract)) for arm in made.arms)
    return evaluate_again(replace(made, arms=arms, kind="case"))


def _plain(contract: Contract | None) -> Contract:
    assert contract is not None
    outputs = tuple(replace(leaf, type_name="torch.Tensor") for leaf in contract.outputs)
    return replace(contract, outputs=outputs)


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "lab.db")
    with open_store(path) as store:
        store.begin_run(RUN)
        for position, result in enumerate((evaluated("one"), evaluated("two"))):
            figures = metrics_of(result, RUN.plan[position], "inductor", ("again", str(position)))
            store.add_cases(RUN.id, result, [(position, figures)])
        store.save(make_result("mine", created="2020-01-01"))
    return path


def test_thinning_by_age(db: str) -> None:
    with pytest.raises(UsageError, match="less than a day"):
        prune(db, 3600.0, 0, COMMAND, silent)
    trial, _ = prune(db, 90 * 86_400.0, 0, COMMAND, silent, trial=True)
    assert (trial.results, trial.trial) == (2, True)
    told: list[tuple[str, int, int]] = []
    done, shrunk = prune(
        db, 90 * 86_400.0, 0, COMMAND, lambda *words: told.append(words), compact=True
    )
    assert done.results == 2
    assert shrunk >= 0
    assert told == [("results", 2, 2)]
    weight = size(db)
    assert (weight.pruned.results, weight.whole.results) == (2, 0)
    assert prune(db, 90 * 86_400.0, 0, COMMAND, silent)[0].results == 0
    with pytest.raises(UsageError, match="no database"):
        prune(db + ".none", 90 * 86_400.0, 0, COMMAND, silent)


def test_figures_derived_anew_are_those_derived_before(db: str) -> None:
    with open_store(db) as store:
        before = store.cases(RUN.id)
    made = rebuild(db, silent, every=True)
    assert (made.runs, made.figures) == (1, 2)
    with open_store(db) as store:
        assert store.cases(RUN.id) == before
        assert before[1].command == ("again", "1")
        assert before[0].base_ns is not None


def test_what_a_thinned_result_says(db: str) -> None:
    with open_store(db) as store:
        whole = store.load("one")
    prune(db, 90 * 86_400.0, 0, COMMAND, silent)
    with open_store(db) as store:
        pruned = store.load("one")
    text = report(pruned)
    assert "samples were removed on 20" in text
    assert "torchstone db prune --older-than 90d" in text
    assert '"pruned": {' in dumps(pruned)
    assert '"time": null' in dumps(pruned)
    assert '"pruned": null' in dumps(whole)
    assert pruned.comparisons == whole.comparisons
    assert str(pruned.comparisons[0].verdict.value) in text


def test_a_thinned_result_is_not_judged_anew(db: str) -> None:
    prune(db, 90 * 86_400.0, 0, COMMAND, silent)
    for wanted in ("one", RUN.id):
        with pytest.raises(UsageError, match=r"samples of .* were removed on") as caught:
            validate_stored(wanted, db, save=True)
        assert "torchstone repro" in caught.value.remedy
    later = evaluated("three")
    more = replace(RUN, id="new", created="2999-01-01T00:00:00+00:00")
    with open_store(db) as store:
        store.begin_run(more)
        figures = metrics_of(later, RUN.plan[0], "inductor", ())
        store.add_cases("new", later, [(0, figures)])
    (one,) = validate_stored("new", db, save=False)
    assert not one.skipped


def test_of_a_run_the_rest_is_judged(db: str, tmp_path: Path) -> None:
    prune(db, 90 * 86_400.0, 0, COMMAND, silent)
    third = evaluated("third")
    run = replace(RUN, id="mixed", created="2999-01-01T00:00:00+00:00")
    with open_store(db) as store:  # a shard of it was thinned elsewhere
        store.begin_run(run)
        for position, result in enumerate((store.load("one"), third)):
            moved = replace(result, id=f"moved-{position}")
            figures = replace(store.cases(RUN.id)[position], result_id=moved.id)
            store.add_cases("mixed", moved, [(position, figures)])
    found = validate_stored("mixed", db, save=True)
    assert [one.skipped for one in found] == [True, False]
    assert found[0].after == found[0].before


def test_repro_of_a_thinned_result_has_nothing_to_compare_with(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measuring itself is tested elsewhere; here it hands back a new result."""
    prune(db, 90 * 86_400.0, 0, COMMAND, silent)
    with open_store(db) as store:
        stored = store.load("one")
    fresh = evaluated("fresh")
    monkeypatch.setattr("torchstone.lab.repro.measure", lambda *words: fresh)
    monkeypatch.setattr("torchstone.lab.repro.check_arm", lambda arm: None)
    done = repro(stored, trust=True, recorder=None)
    assert done.new == fresh
    assert done.against_stored == ()
    assert len(done.combined.arms) == 4
