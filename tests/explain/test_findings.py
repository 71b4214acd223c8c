"""Findings: each fires on what it is for, and keeps quiet otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.ledger_synthetic import ARM, ledger, op
from tests.show import synthetic_result
from torchstone.explain.findings.base import (
    FINDINGS,
    LEAST_GAIN,
    MOST_FINDINGS,
    Finding,
    FindingRule,
    finding,
    predict,
    with_findings,
)
from torchstone.explain.findings.code import (
    batch_loop,
    float64,
    graph_breaks,
    item_in_loop,
    layout_conversions,
    needless_cast,
    recompiles,
    same_value,
    small_copies,
    strided_input,
    unfused,
)
from torchstone.explain.findings.hardware import (
    allocations,
    device_copies,
    idle_cores,
    slow_precision,
    synchronisation,
    thread_pool,
)
from torchstone.explain.findings.python import (
    data_loading,
    files,
    garbage_collection,
    gil,
    grad_in_inference,
    locks,
    network,
    optimizer,
    python_between_ops,
    sleep,
)
from torchstone.records import CodeSite, Ledger, Prediction, Remedy, SourceLine
from torchstone.show.ledger import predicted_words

MANY = tuple(op(f"aten::op{i}", kernel=1e-5, front=2e-5, calls=20) for i in range(5))
SMALL_OPS = ledger({"interpreter": 0.3, "dispatch": 0.4, "kernels": 0.3}, wall_s=1e-3, ops=MANY)
COMPILED = replace(ARM, variant="inductor")
CUDA = replace(ARM, device="cuda")
PLACE = SourceLine("print", "model.py", 9)

AVX2 = replace(synthetic_result.environment(), cpu={"flags": "avx avx2 fma"})
SHARES = {"interpreter": 0.3, "dispatch": 0.3, "kernels": 0.4}


def at_line(kind: str, detail: str = "") -> Ledger:
    """A ledger with one site that is half of its step."""
    site = CodeSite(kind, "model.py", 9, "x = f(x)", ("aten::mm ×64",), 64, 0.5, 0.5, 64, 1e-3)
    return ledger(SHARES, ops=MANY, sites=(replace(site, detail=detail),))


CASES: list[tuple[FindingRule, Ledger, Remedy]] = [
    (python_between_ops, SMALL_OPS, Remedy(variant="inductor")),
    (
        unfused,
        ledger({"kernels": 1.0}, ops=(op("aten::add", 4e-3, calls=4), op("aten::mm", 6e-3))),
        Remedy(variant="inductor"),
    ),
    (
        allocations,
        ledger({"kernels": 0.7, "allocator": 0.3}, facts={"faults": "4000", "fault_ns": "500"}),
        Remedy(allocator="keep"),
    ),
    (
        garbage_collection,
        ledger({"interpreter": 0.8, "collector": 0.2}),
        Remedy(technique="gc_freeze"),
    ),
    (grad_in_inference, ledger({"kernels": 0.9, "autograd": 0.1}), Remedy(technique="no_grad")),
    (
        idle_cores,
        ledger({"kernels": 0.9, "interpreter": 0.1}, facts={"threads": "1", "cores": "4"}),
        Remedy(threads=4),
    ),
    (
        thread_pool,
        ledger({"kernels": 0.2, "pool": 0.8}, facts={"threads": "2", "cores": "2"}),
        Remedy(threads=1),
    ),
    (
        layout_conversions,
        ledger(ops=(op("aten::clone", 2e-3), op("aten::mkldnn_convolution", 5e-3))),
        Remedy(technique="channels_last"),
    ),
    (layout_conversions, ledger(ops=(op("aten::clone", 2e-3), op("aten::mm", 5e-3))), Remedy()),
    (optimizer, ledger({"kernels": 0.8, "optimizer": 0.2}), Remedy(technique="fused_optimizer")),
    (
        graph_breaks,
        ledger({"kernels": 0.8, "breaks": 0.1, "guards": 0.1}, arm=COMPILED, breaks=(PLACE,)),
        Remedy(),
    ),
    (data_loading, ledger({"loading": 0.4, "kernels": 0.6}), Remedy()),
    (files, ledger({"files": 0.4, "kernels": 0.6}), Remedy()),
    (network, ledger({"network": 0.4, "kernels": 0.6}), Remedy()),
    (locks, ledger({"locks": 0.4, "kernels": 0.6}), Remedy()),
    (sleep, ledger({"sleep": 0.4, "kernels": 0.6}), Remedy()),
    (gil, ledger({"gil": 0.4, "kernels": 0.6}), Remedy()),
    (device_copies, ledger(arm=CUDA, ops=(op("Memcpy HtoD (Pinned)", 2e-3, calls=6),)), Remedy()),
    (
        synchronisation,
        ledger(arm=CUDA, ops=(op("aten::_local_scalar_dense", 2e-3, calls=6),)),
        Remedy(),
    ),
    (batch_loop, at_line("batch-loop"), Remedy()),
    (small_copies, at_line("small-copies", "grow"), Remedy()),
    (small_copies, at_line("small-copies", "cast"), Remedy()),
    (small_copies, at_line("small-copies", "copy"), Remedy()),
    (item_in_loop, at_line("item"), Remedy()),
    (same_value, at_line("same-value", "step"), Remedy()),
    (same_value, at_line("same-value", "again"), Remedy()),
    (float64, at_line("float64", "given"), Remedy()),
    (needless_cast, at_line("cast", "back bfloat16 float32"), Remedy()),
    (strided_input, at_line("strided-input", "8×8"), Remedy()),
    (
        slow_precision,
        ledger({"kernels": 1.0}, arm=replace(ARM, precision="bf16"), environment=AVX2),
        Remedy(),
    ),
]
QUIET = ledger(
    {"kernels": 0.97, "interpreter": 0.02, "dispatch": 0.01},
    ops=(op("aten::mm", 9.7e-3, 1e-4, calls=2),),
)


@pytest.mark.parametrize(
    ("rule", "seen", "remedy"), CASES, ids=lambda value: getattr(value, "name", "")
)
def test_it_fires_with_a_prediction_that_can_be_tested(
    rule: FindingRule, seen: Ledger, remedy: Remedy
) -> None:
    found = rule.look(seen)
    assert found is not None
    assert found.name == rule.name
    low, high = found.time_ratio
    assert 0 < low < high < 1  # a prediction that nothing can refute is none
    assert found.at_stake_s > 0
    assert found.remedy == remedy
    assert found.remedy.applicable or found.why_not
    assert found.evidence
    assert found.advice


@pytest.mark.parametrize(
    "rule", {case[0].name: case[0] for case in CASES}.values(), ids=lambda r: r.name
)
def test_it_keeps_quiet_where_nothing_is_wrong(rule: FindingRule) -> None:
    assert rule.look(QUIET) is None


def test_compiled_code_is_not_told_to_compile() -> None:
    assert python_between_ops.look(replace(SMALL_OPS, arm=COMPILED)) is None


def test_python_that_has_nothing_to_do_with_ops_is_not_promised_away() -> None:
    lone = ledger({"interpreter": 0.95, "dispatch": 0.05}, ops=MANY[:1])
    found = python_between_ops.look(lone)
    assert found is None or found.time_ratio[0] > 0.8


def test_a_cpu_with_bf16_is_not_blamed_for_it() -> None:
    seen = ledger({"kernels": 1.0}, arm=replace(ARM, precision="bf16"), environment=AVX2)
    able = replace(AVX2, cpu={"flags": "avx512_bf16"})
    assert slow_precision.look(replace(seen, environment=able)) is None
    assert slow_precision.look(replace(seen, arm=ARM)) is None
    assert slow_precision.look(replace(seen, environment=None)) is None
    found = slow_precision.look(seen)
    assert found is not None
    assert "no instructions for bfloat16 (none of avx512_bf16" in found.evidence


def test_on_the_cpu_there_is_nothing_to_synchronise() -> None:
    seen = ledger(ops=(op("aten::_local_scalar_dense", 5e-3),))
    assert synchronisation.look(seen) is None


def test_a_graph_break_keeps_its_line() -> None:
    seen = ledger({"kernels": 0.8, "breaks": 0.2}, arm=COMPILED, breaks=(PLACE,))
    found = graph_breaks.look(seen)
    assert found is not None
    assert found.places == (PLACE,)


def test_recompiles_predict_nothing_of_a_steady_step() -> None:
    found = recompiles.look(ledger({"kernels": 1.0}, arm=COMPILED, late_compiles=3))
    assert found is not None
    assert not found.remedy.applicable
    assert "--vs inductor+dynamic" in found.why_not
    assert predicted_words(found) == ""
    dynamic = replace(COMPILED, variant="inductor+dynamic")
    assert recompiles.look(ledger({"kernels": 1.0}, arm=dynamic, late_compiles=3)) is None
    assert recompiles.look(QUIET) is None


def test_threads_that_may_pay_are_left_alone() -> None:
    """One thread would take the kernels' time twice: 1.4 steps for them instead of one."""
    shares = {"kernels": 0.7, "pool": 0.3}
    assert thread_pool.look(ledger(shares, facts={"threads": "2", "cores": "2"})) is None


def test_more_threads_than_cores_are_made_as_many() -> None:
    shares = {"kernels": 0.4, "pool": 0.6}
    found = thread_pool.look(ledger(shares, facts={"threads": "8", "cores": "4"}))
    assert found is not None
    assert found.remedy == Remedy(threads=4)
    assert found.time_ratio[1] < 1 - LEAST_GAIN


def test_threads_that_keep_the_step_from_its_core_may_let_it_run() -> None:
    facts = {"threads": "8", "cores": "4"}
    found = thread_pool.look(ledger({"kernels": 0.3, "pool": 0.4, "contention": 0.3}, facts=facts))
    assert found is not None
    assert found.time_ratio[0] == 0.01


def test_what_is_not_explained_may_go_as_well() -> None:
    whole, half = ({"autograd": 0.1, "kernels": share} for share in (0.9, 0.5))
    sure, doubtful = (grad_in_inference.look(ledger(shares)) for shares in (whole, half))
    assert sure is not None
    assert doubtful is not None
    assert doubtful.time_ratio[0] == pytest.approx(sure.time_ratio[0] - 0.4)
    assert doubtful.time_ratio[1] == sure.time_ratio[1]


def test_a_compiler_calls_libraries_as_eager_code_does() -> None:
    """Python and dispatch in front of matrix products stay, so nothing is promised for them."""
    shares = {"interpreter": 0.3, "dispatch": 0.4, "kernels": 0.3}
    heavy = tuple(op(f"aten::{name}", 1e-5, front=2e-5, calls=20) for name in ("mm", "addmm"))
    assert python_between_ops.look(ledger(shares, wall_s=1e-3, ops=heavy)) is None
    assert python_between_ops.look(ledger(shares, wall_s=1e-3, ops=(*heavy, *MANY))) is not None


def test_entering_compiled_code_takes_more_than_a_short_step_can_win() -> None:
    shares = {"interpreter": 0.3, "dispatch": 0.6, "kernels": 0.1}
    training = replace(ARM, mode="training")
    short = ledger(shares, wall_s=3e-4, ops=MANY)
    assert python_between_ops.look(short) is not None
    assert python_between_ops.look(replace(short, arm=training)) is None


def test_only_kernels_that_can_be_merged_are_counted_and_pages_once() -> None:
    ops = (
        op("aten::mm", 6e-3, calls=100),
        op("aten::empty", 1e-3, calls=50),
        op("aten::relu", 4e-3),
    )
    assert unfused.look(ledger({"kernels": 1.0}, ops=ops)) is None  # one kernel is none to merge
    chain = (op("aten::add", 8e-3, calls=4),)
    found = unfused.look(ledger({"kernels": 0.3, "allocator": 0.7}, ops=chain))
    assert found is not None
    assert found.evidence.startswith("30 % of the step is in 4 kernels")
    assert found.evidence.endswith("and 70 % goes into memory for them")


def test_at_most_five_the_largest_first_and_each_remedy_once() -> None:
    shares = {
        "loading": 0.11,
        "files": 0.12,
        "locks": 0.13,
        "sleep": 0.14,
        "gil": 0.15,
        "network": 0.16,
    }
    rules = [data_loading, files, locks, sleep, gil, network]
    found = with_findings(ledger(shares), rules).findings
    assert [one.name for one in found] == ["network", "gil", "sleep", "locks", "files"]
    assert len(found) == MOST_FINDINGS
    both = ledger({"interpreter": 0.3, "dispatch": 0.3, "kernels": 0.4}, 1e-3, ops=MANY)
    names = [one.name for one in with_findings(both, [python_between_ops, unfused]).findings]
    assert names == ["python-between-ops"]


def test_the_line_that_most_of_it_comes_from_goes_before_the_rest() -> None:
    def of(name: str, share: float, places: tuple[SourceLine, ...] = ()) -> Finding:
        def look(made: Ledger) -> Prediction:
            stake = share * made.wall_s
            return predict(made, "", "", stake, gain=(0.1 * stake, stake), places=places)

        return finding(name, 2, "")(look)

    def order(share: float) -> list[str]:
        rules = [of("ops", 0.9), of("item", share, (PLACE,))]
        return [one.name for one in with_findings(SMALL_OPS, rules).findings]

    assert order(0.7) == ["item", "ops"]
    assert order(0.3) == ["ops", "item"]


def test_more_threads_than_were_asked_for_come_last() -> None:
    busy = ledger({"kernels": 0.8, "sleep": 0.2}, facts={"threads": "1", "cores": "2"})
    rules = [idle_cores, sleep]

    def order(threads: int | None) -> list[str]:
        asked = replace(busy, arm=replace(ARM, threads=threads))
        return [one.name for one in with_findings(asked, rules).findings]

    assert order(None) == ["idle-cores", "sleep"]
    assert order(1) == ["sleep", "idle-cores"]


def test_every_finding_is_registered_under_its_own_name() -> None:
    points = FINDINGS.by_name()
    for name, point in points.items():
        assert point.load().name == name
    assert set(points) == {recompiles.name, *(case[0].name for case in CASES)}
