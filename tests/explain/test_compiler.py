"""Why compiled code is left, and at which line: real breaks, by Dynamo's own records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchstone.explain.ledger import make_ledger, run_passes_of
from torchstone.explain.passes.report import Plan
from torchstone.explain.passes.traced import UNSAID, _breaks
from torchstone.records import ArmSpec

QUICK = Plan(budget_s=1.5, rounds=4, count_flops=False)


def entry(
    name: str, first: int, *reasons: str, again: str | None = None, file: str = "x.py"
) -> Any:
    """A row of Dynamo's record."""
    return SimpleNamespace(
        co_name=name,
        co_filename=file,
        co_firstlineno=first,
        restart_reasons=set(reasons),
        recompile_reason=again,
    )


def resumed(name: str, line: int, *reasons: str, again: str | None = None) -> Any:
    return entry(f"torch_dynamo_resume_in_{name}_at_{line}", line, *reasons, again=again)


def said(*entries: Any) -> dict[int, str]:
    return {one.line: one.reason for one in _breaks(list(entries))}


def test_a_branch_without_a_reason_shifts_no_other() -> None:
    """As Dynamo tells it: `print` at line 8, `if x.sum() > 0` at 10, `graph_break()` at 4 in g."""
    assert said(
        entry("f", 6, "print"),
        resumed("f", 8),
        resumed("f", 10, "graph_break"),
        entry("g", 3, "graph_break"),
        resumed("g", 4),
        entry("f", 6, "print", again="size"),
        resumed("f", 8, again="size"),
    ) == {8: "print", 10: UNSAID, 4: "graph_break"}


def test_a_function_that_was_compiled_again_breaks_for_its_own_reason() -> None:
    assert said(
        entry("f", 6, "print"),
        resumed("f", 8),
        entry("g", 20, "sleep"),
        entry("f", 6, "open", again="size"),
        resumed("f", 9),
    ) == {8: "print", 9: "open", 20: "sleep"}


def test_a_break_with_nothing_after_it_has_the_line_of_its_function() -> None:
    """`return g(x)`, where g may not be compiled; and the same where g breaks inside."""
    assert said(entry("f", 6, "skipped")) == {6: "skipped"}
    assert said(entry("f", 6, "print"), entry("g", 3, "print"), resumed("g", 4)) == {4: "print"}
    assert said(entry("f", 6, "skipped", again="size")) == {}


def test_such_a_break_after_another_one_is_a_second_one() -> None:
    found = _breaks([entry("f", 6, "print"), resumed("f", 8, "skipped")])
    assert [(one.line, one.reason) for one in found] == [(8, "print"), (8, "skipped")]


def test_a_break_that_is_known_is_not_told_again() -> None:
    """Two functions that call a third, in which it breaks; and one whose callee has no code."""
    inner = entry("g", 3, "print"), resumed("g", 4)
    assert said(entry("f", 6, "print"), *inner, entry("h", 20, "print")) == {4: "print"}
    assert said(entry("f", 6, "print"), resumed("f", 8), entry("g", 3, "print")) == {8: "print"}


def test_two_functions_of_one_name_are_told_apart_by_their_lines() -> None:
    """The outer `forward` breaks because the inner one does."""
    assert said(
        entry("forward", 21, "print"),
        entry("forward", 14, "print"),
        resumed("forward", 16),
        resumed("forward", 23),
        resumed("forward", 25),
    ) == {16: "print", 23: "print", 25: UNSAID}


def test_the_other_side_of_a_branch_is_the_same_place() -> None:
    assert said(
        entry("f", 6), resumed("f", 10, "graph_break"), resumed("f", 12), resumed("f", 10)
    ) == {10: UNSAID, 12: "graph_break"}


BROKEN = """
import torch

def inner(x):
    torch._dynamo.graph_break()
    return x + 1

@torch.compiler.disable
def burn():
    total = 0
    for number in range(40_000):
        total += number & 7
    return total

def step(x):
    y = x @ x
    burn()
    y = y + 1
    if x.sum() > 0:
        y = y - 1
    return inner(y)

def ends_in_python(x):
    y = x @ x
    burn()
    return y

def make():
    return step, (torch.ones(64, 64),)

def make_end():
    return ends_in_python, (torch.ones(64, 64),)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("targets") / "broken.py"
    path.write_text(BROKEN, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("make", ["make", "make_end"])
def test_a_steps_own_python_is_no_price_of_its_graph_breaks(file: Path, make: str) -> None:
    pytest.importorskip("torch")
    arm = ArmSpec("x", f"{file}:{make}", variant="aot_eager", threads=1)
    seen = run_passes_of(arm, QUICK)
    found = make_ledger(arm, seen)
    assert seen.costs.breaking > 0
    traced = seen.rounds[0].traced
    assert traced is not None
    assert traced.breaks == (4 if make == "make" else 1)
    python, compiler = found.share("interpreter"), found.share("breaks") + found.share("guards")
    assert python > 2 * compiler > 0
    if make == "make":
        reasons = {place.line: place.reason for place in found.breaks}
        assert "disable" in reasons[17]
        assert reasons[19] == UNSAID
        assert "graph_break()" in reasons[5]
