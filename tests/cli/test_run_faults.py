"""A suite of planted faults beside healthy models: each its own outcome, the healthy untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.memory_group import memory_group  # noqa: F401
from tests.targets.support import HERE as TARGETS
from tests.targets.support import torchstone
from torchstone.records import CaseMetrics
from torchstone.store import open_store

pytestmark = pytest.mark.slow

# model: outcome, words of the reason
EXPECTED = {
    "segfault": ("crash", "SIGSEGV"),
    "hang": ("timeout", "no answer within"),
    "wrong_answer": ("wrong_answer", "output"),
    "wrong_dtype": ("wrong_answer", "expected float32[32,64], got bfloat16[32,64]"),
    "nondeterministic": ("nondeterministic", "two runs from one seed differ"),
    "missing_package": ("error", "a_package_that_nobody_has"),
    "not_a_number": ("wrong_answer", "NaN"),
    "babbles": ("ok", ""),
    "forks": ("ok", ""),
    "healthy": ("ok", ""),
    "healthy_too": ("ok", ""),
}


def cases_of(folder: Path, *words: str) -> dict[str, CaseMetrics]:
    db = folder / f"{len(list(folder.iterdir()))}.db"
    done = torchstone(
        "run", str(TARGETS / "faults.toml"), "--variants", "aot_eager", "--budget-per-case", "3s",
        "--replicates", "3", "--timeout", "8s", "--threads", "1", "--db", str(db), *words,
        cwd=folder, timeout=900,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    with open_store(str(db), read_only=True) as store:
        return {case.key.model: case for case in store.run_view("last").complete}


def test_each_fault_has_its_outcome_and_the_healthy_are_as_without(tmp_path: Path) -> None:
    among_faults = cases_of(tmp_path, "--exclude", "memory_hog")  # which needs a group
    alone = cases_of(tmp_path, "--only", "healthy*")
    found = {model: case.outcome.value for model, case in among_faults.items()}
    assert found == {model: outcome for model, (outcome, _) in EXPECTED.items()}
    for model, (_, words) in EXPECTED.items():
        assert words in among_faults[model].reason
        assert among_faults[model].command[:2] == ("torchstone", "bench")
    for model in ("healthy", "healthy_too"):
        with_faults, without = among_faults[model].interval, alone[model].interval
        assert with_faults is not None
        assert without is not None
        assert with_faults[0] <= without[1]
        assert without[0] <= with_faults[1]


def test_a_kill_for_want_of_memory_is_told_and_the_next_runs_on(
    memory_group: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    found = cases_of(tmp_path, "--only", "memory_hog", "--only", "healthy_too")
    assert list(found) == ["memory_hog", "healthy_too"]
    assert found["memory_hog"].outcome.value == "oom"
    assert "want of memory" in found["memory_hog"].reason
    assert found["memory_hog"].command[:2] == ("torchstone", "bench")
    assert found["healthy_too"].outcome.value == "ok"
