"""A case that could not run stays so, whatever is made of its neighbours' result later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import make_result
from store_runs import derive, make_run
from test_store_evaluate import doubted

from torchstone.records import CaseKey, CaseMetrics, Outcome, PlannedCase, Result, Run
from torchstone.store import Store, open_store

WHY = "CUDA graphs need a CUDA device"
UNABLE = "inductor+cudagraphs"
ABLE = [("inductor",), ("inductor", "aot_eager")]


def group(able: tuple[str, ...]) -> tuple[Run, Result, list[tuple[int, CaseMetrics]]]:
    """A run of one group: the unsupported variant first, then those that were measured."""
    keys = [CaseKey("timm", "resnet18", "small", "inference", "fp32", v) for v in (UNABLE, *able)]
    plan = [PlannedCase(key, "timm:resnet18@small") for key in keys]
    plan[0] = replace(plan[0], not_supported=WHY)
    result = make_result("r-1", arms=("eager", *able))
    command = ("torchstone", "bench")
    unable = CaseMetrics(keys[0], Outcome.NOT_SUPPORTED, WHY, command=command)
    measured = [CaseMetrics(key, Outcome.OK, result_id=result.id) for key in keys[1:]]
    run = replace(make_run(), plan=tuple(plan))
    return run, result, list(enumerate([unable, *measured]))


def outcomes(store: Store, run: Run) -> dict[str, tuple[str, str]]:
    return {c.key.variant: (c.outcome.value, c.reason) for c in store.run_view(run.id).cases}


@pytest.mark.parametrize("able", ABLE)
def test_it_is_no_case_of_the_result(db: Path, able: tuple[str, ...]) -> None:
    run, result, cases = group(able)
    with open_store(str(db)) as store:
        store.begin_run(run)
        store.add_cases(run.id, result, cases)
        assert outcomes(store, run) == {
            UNABLE: ("not_supported", WHY),
            **dict.fromkeys(able, ("ok", "")),
        }
        assert store.result_ids(run.id) == [result.id]
        assert store.done_positions(run.id) == set(range(1 + len(able)))


@pytest.mark.parametrize("able", ABLE)
def test_it_stays_unsupported_when_all_is_derived_anew(db: Path, able: tuple[str, ...]) -> None:
    run, result, cases = group(able)
    after = {UNABLE: ("not_supported", WHY), **{name: ("ok", f"r-1 {name}") for name in able}}
    with open_store(str(db)) as store:
        store.begin_run(run)
        store.add_cases(run.id, result, cases)
        assert store.rebuild(derive, every=True).figures == len(able)
        assert outcomes(store, run) == after
        store.add_evaluation(result, doubted(result), derive)
        assert outcomes(store, run) == after
        (unable,) = [c for c in store.run_view(run.id).cases if c.key.variant == UNABLE]
    assert (unable.result_id, unable.command) == ("", ("torchstone", "bench"))


@pytest.mark.sqlite_only
@pytest.mark.parametrize("able", ABLE)
def test_it_is_joined_into_another_database_as_it_is(db: Path, able: tuple[str, ...]) -> None:
    run, result, cases = group(able)
    with open_store(str(db)) as other, open_store(str(db.with_name("joined.db"))) as store:
        other.begin_run(run)
        other.add_cases(run.id, result, cases)
        assert store.merge_run(other, run.id) == 1 + len(able)
        store.rebuild(derive, every=True)
        assert outcomes(store, run)[UNABLE] == ("not_supported", WHY)
