"""What people and programs read of a tuning, and that it comes out of the store as it went in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.show.reports import tune_markdown, tune_report
from tests.tuning.made import tuning
from torchstone.records import Decision, Stage, TorchstoneError, UsageError
from torchstone.show.listing import listing
from torchstone.show.tune import headline, tune_dumps
from torchstone.store import open_store


def test_the_report_says_what_was_adopted_and_why_all_else_was_not() -> None:
    text = tune_report(tuning(), width=100)
    assert "1.6× as fast (1.54–1.67), confirmed from the recipe file" in text
    assert "1. +channels_last: 1.56× (1.52–1.61), memory 100 %" in text
    assert "compiling pays after 1,234 calls" in text
    assert "gc_freeze: no gain above 2%" in text
    assert "tf32: tf32 is a mode of CUDA devices" in text
    assert "Remedy by hand: load ahead" in text
    assert "--threads 2 --vs recipe:recipe_1tuned.py" in " ".join(text.replace("\\", "").split())
    assert max(map(len, text.splitlines())) <= 100


def test_narrow_and_plain_terminals_lose_nothing() -> None:
    text = tune_report(tuning(), width=60, unicode=False)
    assert max(map(len, text.splitlines())) <= 60
    assert text.isascii()
    assert "channels_last" in text


def test_nothing_adopted_is_a_result_too() -> None:
    found = replace(tuning(), experiments=tuning().experiments[:4], adopted=(), recipe="")
    assert headline(found).startswith("Leave it as it is: of 3 techniques measured")
    unsure = replace(found, state="interrupted")
    assert headline(unsure).startswith("Nothing adopted yet")
    assert "--resume 1tuned" in tune_report(unsure)


def test_a_recipe_that_does_not_hold_is_not_praised() -> None:
    *some, last = tuning().experiments
    last = replace(last, decision=Decision.WRONG_ANSWER, reason="other values")
    found = replace(tuning(), experiments=(*some, last))
    assert "not confirmed from the recipe file (other values)" in headline(found)


def test_markdown_cannot_be_broken_by_a_reason() -> None:
    text = tune_markdown(tuning())
    assert "<script>" not in text
    assert "channels_last" in text


def test_json_has_all_and_what_is_derived() -> None:
    found = json.loads(tune_dumps(tuning()))
    assert (found["kind"], found["schema"]) == ("tuning", 1)
    assert found["experiments"][-1]["speedup"] == pytest.approx(1.6)
    assert found["pareto"] == ["recipe"]
    assert found["headline"] == headline(tuning())


def test_it_comes_out_of_the_store_as_it_went_in(tmp_path: Path) -> None:
    found = tuning()
    begun = replace(found, experiments=(), adopted=(), state="running", recipe="")
    with open_store(str(tmp_path / "t.db")) as store:
        store.begin_tuning(begun)
        store.add_experiment("1tuned", found.experiments[0])
        killed = store.load_tuning("1tu")
        assert (killed.state, len(killed.experiments)) == ("running", 1)
        for one in found.experiments[1:]:
            store.add_experiment("1tuned", one)
        store.end_tuning(found)
        assert store.load_tuning("last") == found
        (listed,) = store.list_tunings()
        with pytest.raises(TorchstoneError):
            store.begin_tuning(begun)
        with pytest.raises(UsageError, match="no tuning"):
            store.load_tuning("nothing")
    assert listed.speedup == pytest.approx(1.6)
    assert "channels_last (1.6 times as fast)" in listing("tunings", [listed], width=140)


def test_the_ladder_is_of_adopted_steps_alone() -> None:
    found = tuning()
    assert [one.technique for one in found.ladder] == ["channels_last"]
    assert found.confirmation is not None
    assert found.confirmation.stage is Stage.CONFIRM
