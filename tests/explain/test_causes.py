"""Causes planted in real models are named with their line; healthy models get none."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
import torch

from tests.explain.ledger_synthetic import ARM, ledger, op
from tests.targets import causes
from torchstone.explain.findings.base import with_findings
from torchstone.explain.passes.calls import Unrecorded, entry_ns, record_steps
from torchstone.explain.passes.causes import Sources, find_sites
from torchstone.records import CodeSite, Ledger, from_data, to_data
from torchstone.workloads import Inputs

PLANTED = (
    ("make_batch_loop", "batch-loop", "# planted: batch-loop"),
    ("make_nested_loop", "batch-loop", "# planted: batch-loop, nested"),
    ("make_rows_of_net", "batch-loop", "# planted: batch-loop, net"),
    ("make_growing", "small-copies", "# planted: small-copies, grow"),
    ("make_rows_written", "small-copies", "# planted: small-copies"),
    ("make_mask", "same-value", "# planted: same-value"),
    ("make_twice", "same-value", "# planted: same-value, again"),
    ("make_items", "item", "# planted: item"),
    ("make_double", "float64", "# planted: float64"),
    ("make_there_and_back", "cast", "# planted: cast, back"),
    ("make_cast_weight", "cast", "# planted: cast, kept"),
    ("make_strided", "strided-input", "# planted: strided-input"),
    ("make_passed_on", "strided-input", "# planted: strided-input, passed on"),
)
HEALTHY = (
    *("make_mlp", "make_transformer", "make_conv", "make_recurrent", "make_experts"),
    *("make_training", "make_batched", "make_mask_kept", "make_contiguous"),
)
FINDING = {"item": "item-in-loop", "cast": "needless-cast"}
LINES = {"interpreter": 0.3, "dispatch": 0.3, "kernels": 0.4}
STEPS = 3


def fresh(tensor: torch.Tensor, turn: int) -> torch.Tensor:
    """Other values that lie in memory as these do."""
    return torch.empty_like(tensor).copy_(tensor.roll(7 * turn + 1))


def sites_of(factory: str) -> tuple[CodeSite, ...]:
    call, args = getattr(causes, factory)()
    ring = [Inputs(tuple(fresh(one, turn) for one in args)) for turn in range(STEPS)]
    with torch.no_grad():
        recorded = record_steps(call, ring, STEPS)
    return find_sites(recorded, Sources(), entry_ns())


def found_in(sites: tuple[CodeSite, ...], **changes: object) -> Ledger:
    """A ledger of a step that is made of Python, dispatch and kernels, with these sites."""
    many = (op("aten::op", kernel=4e-3, front=3e-3, calls=500),)
    return with_findings(replace(ledger(LINES, ops=many, sites=sites), **changes))  # type: ignore[arg-type]


def line_of(mark: str) -> int:
    """The line that ends in exactly this mark."""
    lines = inspect.getsource(causes).splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.endswith(mark))
    return found


@pytest.mark.parametrize(("factory", "kind", "mark"), PLANTED, ids=str)
def test_a_planted_cause_is_named_with_its_line(factory: str, kind: str, mark: str) -> None:
    found = found_in(sites_of(factory))
    (one,) = (one for one in found.findings if one.name == FINDING.get(kind, kind))
    assert one.places[0].line == line_of(mark)
    assert one.places[0].file == causes.__file__
    assert f"causes.py:{line_of(mark)}" in one.evidence
    assert one.advice
    assert one.why_not
    low, high = one.time_ratio
    assert 0 < low < high < 1


@pytest.mark.parametrize("factory", HEALTHY)
def test_a_healthy_model_has_no_cause(factory: str) -> None:
    known = {FINDING.get(kind, kind) for _, kind, _ in PLANTED}
    assert [one.name for one in found_in(sites_of(factory)).findings if one.name in known] == []


def test_only_the_planted_causes_are_named_in_a_planted_model() -> None:
    kinds = {one.kind for one in sites_of("make_batch_loop")}
    assert kinds == {"batch-loop"}


def test_a_loop_is_counted_whole_whatever_it_calls() -> None:
    (site,) = (one for one in sites_of("make_nested_loop") if one.kind == "batch-loop")
    assert site.repeats == causes.BATCH
    # three layers of transpose, product and tanh with their views, and the sum, in every turn
    assert site.calls >= 10 * causes.BATCH
    assert site.call_share > 0.98


def test_weights_that_a_step_changes_are_no_constant() -> None:
    weight = torch.ones(64)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * weight.exp()
        weight.add_(x.mean())
        return y

    ring = [Inputs((torch.randn(64),)) for _ in range(STEPS)]
    recorded = record_steps(step, ring, STEPS)
    assert [one.kind for one in find_sites(recorded, Sources())] == []


def test_random_numbers_are_no_constant() -> None:
    ring = [Inputs((torch.randn(64),)) for _ in range(STEPS)]
    recorded = record_steps(lambda x: x + torch.rand(64), ring, STEPS)
    assert find_sites(recorded, Sources()) == ()


def test_a_step_with_too_many_ops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchstone.explain.passes import calls

    monkeypatch.setattr(calls, "MOST_CALLS", 3)
    with pytest.raises(Unrecorded, match="more than 3 ops"):
        record_steps(lambda x: x + 1 + 1 + 1 + 1, [Inputs((torch.ones(2),))], 1)


def test_autocast_casts_as_it_must() -> None:
    sites = sites_of("make_cast_weight")
    plain, auto = found_in(sites), found_in(sites, arm=replace(ARM, precision="amp"))
    assert "needless-cast" in {one.name for one in plain.findings}
    assert "needless-cast" not in {one.name for one in auto.findings}


def test_a_ledger_keeps_its_sites() -> None:
    before = found_in(sites_of("make_mask"))
    assert before.sites
    assert from_data(Ledger, to_data(before)) == before


def test_the_range_of_a_loop_has_all_but_the_loop_at_one_end() -> None:
    """Where the loop is all of the step, a batch of 128 may bring a hundredfold and brings no less
    than most of what the calls cost around their kernels."""
    site = CodeSite("batch-loop", "m.py", 3, call_share=1.0, kernel_share=1.0, repeats=128)
    (one,) = (one for one in found_in((site,)).findings if one.name == "batch-loop")
    low, high = one.time_ratio
    assert low == pytest.approx(0.01)
    assert 0.5 < high < 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "mended", "name"),
    [
        ("make_batch_loop", "make_batched", "batch-loop"),
        ("make_mask", "make_mask_kept", "same-value"),
        ("make_strided", "make_contiguous", "strided-input"),
    ],
)
def test_what_it_brings_lies_in_the_range(planted: str, mended: str, name: str) -> None:
    """The cause explained as a user would have it, then both versions timed in turns."""
    from torchstone.lab.explain import ExplainRequest, explain_target
    from torchstone.lab.request import BenchRequest

    target = f"{causes.__file__}:{planted}"
    bench = BenchRequest(targets=(target,), threads=1)
    found = explain_target(ExplainRequest(bench, budget_s=2.0))
    (one,) = (one for one in found.findings if one.name == name)
    low, high = one.time_ratio
    assert low <= _ratio(planted, mended) <= high


def _ratio(before: str, after: str) -> float:
    """Quickest steps of both, in turns, on one thread."""
    import time

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = [getattr(causes, name)() for name in (before, after)]
    best = [float("inf"), float("inf")]
    with torch.no_grad():
        for _ in range(100):
            for place, (call, args) in enumerate(made):
                started = time.perf_counter()
                call(*args)
                best[place] = min(best[place], time.perf_counter() - started)
    torch.set_num_threads(threads)
    return best[1] / best[0]
