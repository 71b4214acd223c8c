"""Rules about the result as a whole: replicates, alike, same-time, too-good."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.show.synthetic_result import method
from tests.stats import synthetic
from tests.validate.cases import arm, checks, environment, levels, one, pair, result
from torchstone.records import Level, Measurement, Verdict
from torchstone.validate import withhold


def short(name: str, processes: int) -> Measurement:
    made = arm(name)
    return replace(made, turns=tuple(t for t in made.turns if t.replicate < processes))


def test_few_processes_are_told() -> None:
    (check,) = checks("replicates", pair(short("inductor", 2)))
    assert check.level is Level.WARN
    assert check.arms == ("inductor",)
    assert "2 processes" in check.message
    assert levels("replicates", pair(short("inductor", 3))) == [Level.OK]
    (both,) = checks("replicates", pair(short("inductor", 2), short("eager", 1)))
    assert (both.arms, both.figures["processes"]) == (("eager", "inductor"), 1.0)
    some = checks("replicates", result(short("eager", 1), arm("inductor"), short("third", 2)))
    assert [(c.arms, c.figures["processes"]) for c in some] == [(("eager",), 1), (("third",), 2)]


def test_an_interrupt_is_told() -> None:
    note, ok = checks("replicates", pair(method=method(stopped_by="interrupt")))
    assert (note.level, ok.level) == (Level.NOTE, Level.OK)
    assert "after 4 processes" in note.message


def test_an_interrupt_before_the_first_turn() -> None:
    made = result(arm(turns=()), method=method(stopped_by="interrupt"))
    assert levels("replicates", made) == [Level.NOTE]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch": {"version": "2.12.0"}}, "torch 2.12.0 against 2.13.0"),
        ({"torch": {"version": "2.13.0", "git": "b"}}, "torch's build b against a"),
        ({"python": {"version": "3.13.1"}}, "Python 3.13.1 against 3.11.7"),
        ({"threads": {"torch": 1}}, "threads 1 against 2"),
        ({"allocator": "keep"}, "allocator keep against default"),
        ({"os": {"malloc": "jemalloc"}}, "jemalloc is loaded"),
    ],
)
def test_unasked_differences_are_named(changes: dict[str, Any], words: str) -> None:
    check = one("alike", pair(arm("inductor", environment=environment(**changes))), "inductor")
    assert check.level is Level.WARN
    assert words in check.message


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        ({"python": "python3.13"}, {"python": {"version": "3.13.1"}}),
        ({"python": "other/bin/python"}, {"torch": {"version": "2.12.0"}}),
        ({"threads": 1}, {"threads": {"torch": 1}}),
        ({"env": (("OMP_NUM_THREADS", "1"),)}, {"threads": {"torch": 1}}),
        ({"allocator": "jemalloc"}, {"allocator": "jemalloc", "os": {"malloc": "jemalloc"}}),
    ],
)
def test_differences_that_were_asked_for_are_fine(
    spec: dict[str, Any], changes: dict[str, Any]
) -> None:
    made = arm("inductor", environment=environment(**changes))
    made = replace(made, arm=replace(made.arm, **spec))
    assert levels("alike", pair(made)) == [Level.OK]


def test_a_difference_that_another_setting_asked_for_is_still_named() -> None:
    made = arm("inductor", environment=environment(threads={"torch": 1}))
    made = replace(made, arm=replace(made.arm, allocator="keep"))
    assert levels("alike", pair(made)) == [Level.WARN]


def test_another_machine_is_refused() -> None:
    other = arm("inductor", environment=environment(machine_id="m-2"))
    made = result(arm(), other, arm("third", 4e-3, seed=3))
    check = one("alike", made, "inductor")
    assert check.level is Level.FAIL
    assert "m-2" in check.message
    first, second = withhold(made.comparisons, checks("alike", made))
    assert first.verdict is Verdict.CANNOT_TELL
    assert second == made.comparisons[1]


def test_unknown_conditions_are_not_evaluated() -> None:
    assert checks("alike", pair(arm("inductor", environment=None))) == []
    bare = environment(torch={}, python={}, threads={})
    assert levels("alike", pair(arm("numpy", environment=bare))) == [Level.OK]


def test_arms_that_ran_alone_are_told() -> None:
    made = arm("inductor")
    alone = replace(made, replicates=tuple(replace(r, alone=True) for r in made.replicates))
    (check,) = checks("same-time", pair(alone))
    assert check.level is Level.NOTE
    assert "4 of 8 processes" in check.message
    assert check.arms == ("inductor",)
    assert levels("same-time", pair()) == [Level.OK]
    assert checks("same-time", result(alone)) == []


def test_synthetic_noise_does_not_set_rules_off_by_itself() -> None:
    # The other builder's arms carry no evidence at all: rules that cannot look stay silent.
    bare = synthetic.measurement("bare")
    for name in ("alike", "allocator", "constant-output", "fresh-inputs", "late-work", "timer"):
        assert checks(name, result(bare, synthetic.measurement("other", seed=3))) == []
