"""Two ledgers side by side: which ops went where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.ledger_synthetic import ARM, ledger, op
from torchstone.explain.differences import difference
from torchstone.records import OpChange, SourceLine

KERNEL = "graph_0_cpp_fused_add_native_layer_norm_relu_0"
BASE = ledger(
    {"interpreter": 0.3, "dispatch": 0.2, "kernels": 0.5},
    wall_s=1e-3,
    ops=(
        op("aten::add", 5e-5, 5e-5, calls=10),
        op("aten::relu", 5e-5, 5e-5, calls=10),
        op("aten::native_layer_norm", 5e-5, 1e-5),
        op("aten::mm", 2e-4, 1e-5),
        op("aten::clone", 5e-5, 1e-5),
        op("aten::bmm", 5e-5, 0.0),
    ),
)
NEW = ledger(
    {"interpreter": 0.05, "guards": 0.1, "kernels": 0.85},
    wall_s=5e-4,
    arm=replace(ARM, name="inductor", variant="inductor"),
    ops=(
        op(KERNEL, 1e-4, generated=True, ops=("add", "native", "layer", "norm", "relu")),
        op("aten::mm", 2e-4, 1e-5),
        op("aten::bmm", 9e-5, 0.0),
        op("aten::addmm", 3e-5, 0.0),
    ),
    breaks=(SourceLine("print", "model.py", 9),),
)


@pytest.fixture(scope="module")
def changes() -> dict[str, OpChange]:
    return {change.name: change for change in difference(BASE, NEW).changes}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::add", "fused"),
        ("aten::relu", "fused"),
        ("aten::native_layer_norm", "fused"),
        ("aten::clone", "vanished"),
        ("aten::bmm", "grew"),
        ("aten::addmm", "appeared"),
        (KERNEL, "appeared"),
    ],
)
def test_what_became_of_an_op(changes: dict[str, OpChange], name: str, kind: str) -> None:
    assert changes[name].kind == kind


def test_a_fused_op_names_its_kernel(changes: dict[str, OpChange]) -> None:
    assert changes["aten::add"].into == (KERNEL,)
    assert changes["aten::clone"].into == ()


def test_an_op_that_stayed_is_not_told_of(changes: dict[str, OpChange]) -> None:
    assert "aten::mm" not in changes


def test_the_story_in_words() -> None:
    told = " ".join(difference(BASE, NEW).sentences)
    assert "50% shorter under inductor" in told
    assert "Interpreter: " in told
    assert "is left at 1 place (graph breaks)" in told
    assert "`torchstone bench --vs inductor` to decide" in told
    same = difference(BASE, BASE)
    assert same.changes == ()
    assert "No difference" in same.sentences[0]


def test_kernels_stand_for_ops_only_where_ops_ran_one_by_one() -> None:
    told = " ".join(difference(BASE, NEW).sentences)
    assert "1 generated kernel stands for ops that ran one by one." in told
    tuned = replace(
        NEW,
        arm=replace(ARM, name="inductor+max-autotune", variant="inductor+max-autotune"),
        ops=(*NEW.ops, op("cpp_fused_mul_1", 1e-5, generated=True, ops=("mul",))),
        breaks=(),
    )
    told = " ".join(difference(NEW, tuned).sentences)
    assert "one by one" not in told
    assert "2 generated kernels under inductor+max-autotune, 1 under inductor." in told
    assert "left at 0 places (graph breaks), under inductor at 1 place." in told
    assert "`torchstone bench --vs inductor --vs inductor+max-autotune` takes turns" in told
    told = " ".join(difference(NEW, BASE).sentences)
    assert "`torchstone bench --vs inductor` takes turns" in told
    assert "one by one" not in told


def test_a_gap_within_what_the_rounds_vary_is_none() -> None:
    shaky = replace(NEW, facts={"wall_spread": "0.6"})
    told = difference(replace(BASE, facts={"wall_spread": "0.3"}), shaky).sentences
    assert "No difference in time beyond the 60%" in told[0]
    told = difference(replace(BASE, facts={"wall_spread": "0.1"}), NEW).sentences
    assert "50% shorter under inductor (give or take 10%)" in told[0]
