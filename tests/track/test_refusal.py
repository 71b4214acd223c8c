"""What is not alike is not compared, unless that is what is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.track.made import changed, keys, side, two
from torchstone.records import (
    FOREIGN_DEFINITION,
    METRICS_DEFINITION,
    CaseMetrics,
    Method,
    Outcome,
    UsageError,
)
from torchstone.track import ACROSS, Side, Terms, compare

NEXT = METRICS_DEFINITION + 1


def headed(of: Side, **parts: Any) -> Side:
    return replace(of, head=replace(of.head, **parts))


def other_method(of: Side, **parts: Any) -> Side:
    assert isinstance(of.method, Method)
    return replace(of, method=replace(of.method, **parts))


def terms(*across: str) -> Terms:
    return Terms(across=frozenset(across))


DIFFERENCES = {
    "machines": lambda new: headed(new, machine_id="machine-two", machine="An Other CPU"),
    "methods": lambda new: other_method(new, estimator="median"),
    "threads": lambda new: changed(new, lambda c: replace(c, key=replace(c.key, threads=4))),
    "devices": lambda new: changed(new, lambda c: replace(c, key=replace(c.key, device="cuda"))),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_refused_unless_it_is_asked_for(name: str) -> None:
    base, new = two(plan=keys(10))
    different = DIFFERENCES[name](new)
    refused = compare(base, different)
    assert refused.refused
    assert refused.remedy.endswith(f"add --across {name}.")
    assert not refused.cases
    for other in set(ACROSS) - {name, "threads", "devices"}:
        assert compare(base, different, terms(other)).refused == refused.refused
    allowed = compare(base, different, terms(name))
    assert not allowed.refused
    assert len(allowed.cases) == 10
    assert any(mark.startswith(ACROSS[name].split(":")[0]) for mark in allowed.marks)


def test_every_reason_is_named_at_once() -> None:
    base, new = two(plan=keys(10))
    far = headed(other_method(new, estimator="median"), machine_id="machine-two")
    comparison = compare(base, far)
    assert "two machines" in comparison.refused
    assert "two ways" in comparison.refused
    assert comparison.remedy.endswith("add --across machines,methods.")
    assert not compare(base, far, terms("machines", "methods")).refused


def test_another_torch_is_compared_and_marked() -> None:
    base, new = two(plan=keys(10))
    newer = headed(new, torch="2.14.0")
    comparison = compare(base, newer)
    assert not comparison.refused
    assert len(comparison.cases) == 10
    said = "the runs are of two builds of torch: 2.13.0+cpu and 2.14.0"
    assert comparison.marks[0] == f"another build of torch: {said}"
    asked = compare(base, newer, terms("torch"))
    assert asked.marks[0] == f"another build of torch, as asked: {said}"
    far = compare(base, headed(newer, machine_id="machine-two"))
    assert far.remedy.endswith("add --across machines.")


def test_a_base_of_which_nothing_has_ended_is_not_compared() -> None:
    base, new = two(plan=keys(10))
    never = changed(base, lambda c: CaseMetrics(c.key, Outcome.NOT_RUN))
    comparison = compare(never, new)
    assert comparison.refused == "No case that both runs planned has ended in both."
    assert "got further" in comparison.remedy


def test_two_definitions_never_mix_whatever_is_asked() -> None:
    base, new = two(plan=keys(10))
    newer = changed(new, lambda case: replace(case, definition=NEXT))
    comparison = compare(base, newer, terms(*ACROSS))
    assert f"definitions {METRICS_DEFINITION} and {NEXT}" in comparison.refused
    assert "db rebuild" in comparison.remedy
    half = changed(
        new,
        lambda c: replace(c, definition=NEXT) if c.key.model < "model05" else c,
    )
    assert compare(half, half, terms(*ACROSS)).refused


def foreign(case: CaseMetrics) -> CaseMetrics:
    return CaseMetrics(case.key, case.outcome, definition=FOREIGN_DEFINITION)


def test_another_tools_figures_are_not_set_against_ours() -> None:
    base, new = two(plan=keys(10))
    theirs = changed(new, foreign)
    comparison = compare(base, theirs, terms(*ACROSS))
    assert "another tool's figures" in comparison.refused
    outcomes = compare(changed(base, foreign), theirs)
    assert not outcomes.refused
    assert {case.kind for case in outcomes.cases} == {"paired"}
    assert {case.verdict for case in outcomes.cases} == {None}
    assert any("times are not" in mark for mark in outcomes.marks)


def test_small_and_full_are_different_models() -> None:
    base, new = two(plan=keys(10))
    full = changed(new, lambda case: replace(case, key=replace(case.key, scale="full")))
    comparison = compare(base, full, terms(*ACROSS))
    assert "differ in scale: small and full" in comparison.refused
    assert "--scale" in comparison.remedy
    assert "--across" not in comparison.remedy


def test_cases_of_two_allocators_are_not_paired_whatever_is_asked() -> None:
    base, new = two(plan=keys(10))
    other = changed(new, lambda case: replace(case, key=replace(case.key, allocator="jemalloc")))
    for asked in (Terms(), terms(*ACROSS)):
        comparison = compare(base, other, asked)
        assert "differ in allocator: default and jemalloc" in comparison.refused
        assert "the same --allocator" in comparison.remedy
        assert not comparison.cases


def test_runs_without_a_common_case_are_not_compared() -> None:
    base = side(1, keys(5))
    new = side(2, keys(5, suite="mine"), run_id="run-new")
    comparison = compare(base, new)
    assert "no case in common" in comparison.refused
    assert "--variant" in comparison.remedy


def test_an_unknown_machine_is_not_taken_for_the_same() -> None:
    base, new = two(plan=keys(10))
    nowhere = headed(new, machine_id="", machine="")
    assert "not known" in compare(base, nowhere).refused
    neither = compare(headed(base, machine_id=""), nowhere)
    assert not neither.refused
    assert any("neither run says" in mark for mark in neither.marks)


def test_a_run_without_a_method_is_compared() -> None:
    base, new = two(plan=keys(10))
    assert not compare(base, replace(new, method=None)).refused


def test_settings_that_change_only_the_precision_are_no_other_method() -> None:
    base, new = two(plan=keys(10))
    assert not compare(base, other_method(new, replicates=8, budget_s=60.0, seed=4)).refused
    assert "one arm at a time" in compare(base, other_method(new, independent=True)).refused


def test_marks_say_what_a_reader_must_know() -> None:
    base, new = two(plan=keys(10))
    odd = headed(replace(new, version="0.2.0"), dirty=True, origin="host-b.db", state="interrupted")
    marks = compare(base, odd, notes=["newest of 3"]).marks
    assert marks[0] == "newest of 3"
    text = " | ".join(marks)
    assert "new: files differed from the commit 0123456789" in text
    assert "new: from host-b.db" in text
    assert "new: interrupted" in text
    assert "Torchstone 0.1.0 and 0.2.0" in text
    same = compare(base, base)
    assert any("the same run" in mark for mark in same.marks)


def test_across_takes_known_words_only() -> None:
    with pytest.raises(UsageError, match="'planets'") as caught:
        terms("planets")
    assert "machines, torch" in caught.value.remedy


def test_on_another_machine_no_side_is_blamed() -> None:
    base, new = two(plan=keys(20))
    comparison = compare(base, headed(new, machine_id="machine-two"), terms("machines"))
    assert {case.moved for case in comparison.cases} == {"cannot tell"}
