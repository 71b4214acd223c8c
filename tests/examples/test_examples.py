"""Every example runs as its docstring says, and its ways of computing agree."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.examples.running import EXAMPLES, bench, environment, torchstone

HAS_NUMBA = importlib.util.find_spec("numba") is not None
JIT_AGAINST_STEADY = 100
"""numba takes hundreds of milliseconds to compile what then runs in microseconds."""


def check_arms(document: dict[str, Any], names: list[str]) -> dict[str, dict[str, Any]]:
    """All arms are there, all did their work, and outputs from timed turns were checked."""
    arms = {arm["name"]: arm for arm in document["arms"]}
    assert list(arms) == names
    for name, arm in arms.items():
        assert arm["outcome"] == "ok", f"{name}: {arm['outcome_detail']}"
        assert arm["agreement"]["mismatch"] == ""
        assert arm["agreement"]["timed"] > 0
        assert arm["time"]["samples"]
    assert [c["new"] for c in document["comparisons"]] == names[1:]
    assert [check for check in document["checks"] if check["level"] == "fail"] == []
    return arms


WAYS = ["python", "c", "numpy", "torch", *(["numba"] if HAS_NUMBA else [])]


@pytest.fixture(scope="module")
def five_ways() -> dict[str, dict[str, Any]]:
    """The arms of examples/sum2d.py, compared in one call."""
    targets = [f"examples/sum2d.py:make_{way}" for way in WAYS]
    return check_arms(bench(*targets, "--threads", "1"), [f"make_{way}" for way in WAYS])


@pytest.mark.slow
def test_one_sum_five_ways(five_ways: dict[str, dict[str, Any]]) -> None:
    loops = five_ways["make_python"]["time"]["floor"]
    for name in ("make_c", "make_numpy", "make_torch"):
        assert five_ways[name]["time"]["floor"] < loops / 10, name


@pytest.mark.slow
@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")
def test_the_first_call_of_numba_shows_apart_from_its_steady_cost(
    five_ways: dict[str, dict[str, Any]],
) -> None:
    jit, ahead = five_ways["make_numba"], five_ways["make_c"]
    assert jit["time"]["floor"] < five_ways["make_python"]["time"]["floor"] / 10
    assert jit["compile"]["first_call_s"] > JIT_AGAINST_STEADY * jit["time"]["floor"]
    assert jit["compile"]["first_call_s"] > 10 * ahead["compile"]["first_call_s"]
    assert jit["compile"]["cold_s"] is None  # no variant of ours compiled


@pytest.mark.slow
def test_fused_and_unfused_agree() -> None:
    targets = [f"examples/fusion.py:make_{kind}" for kind in ("unfused", "fused")]
    document = bench(*targets, "--threads", "1", "--allocator", "keep")
    arms = check_arms(document, ["make_unfused", "make_fused"])
    # A page fault per page of a result would be 256 for each; `keep` takes them away.
    assert all(arm["faults"]["minor_per_call"] < 64 for arm in arms.values())


@pytest.mark.slow
def test_the_two_layers_train() -> None:
    document = bench("examples/two_layer.py:make", "--mode", "training", "--threads", "1")
    arms = check_arms(document, ["eager"])
    assert arms["eager"]["contract"]["outputs"][0]["path"] == "output.loss"


def test_threads_count_the_same_together_and_one_by_one() -> None:
    names = ["make_one_by_one", "make"]
    check_arms(bench(*(f"examples/threads.py:{name}" for name in names)), names)


@pytest.mark.slow
def test_the_ledger_of_threads_says_who_waited_for_the_lock() -> None:
    few = ("--budget", "1s", "--no-save", "--json", "-")
    done = torchstone("explain", "examples/threads.py:make", *few)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    said = document["interpreter"]
    if document["facts"]["gil"] == "off":
        assert "free-threaded" in said
    elif "nobody could look" not in said:
        assert "Its other Python threads (4) waited for the lock in" in said


def test_without_a_compiler_the_c_way_says_so(tmp_path: Path) -> None:
    env = environment(PATH=str(tmp_path))
    env.pop("CC", None)
    done = torchstone("bench", "examples/sum2d.py:make_c", "--no-save", env=env)
    assert done.returncode == 1
    assert "make_c needs a C compiler" in " ".join(done.stdout.split())


def commands_of(path: Path) -> list[list[str]]:
    """The commands that an example's docstring shows."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False) or ""
    joined = re.sub(r"\\\n\s+", "", docstring)
    return [shlex.split(line) for line in joined.splitlines() if line.startswith("    torchstone ")]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_the_docstring_shows_commands_that_name_what_exists(path: Path) -> None:
    from torchstone.workloads import check_target

    commands = commands_of(path)
    assert commands, f"{path.name} shows no command"
    for words in commands:
        targets = [word for word in words if word.startswith("examples/")]
        assert targets
        for target in targets:
            assert check_target(str(EXAMPLES.parent / target)).kind == "file"


def test_the_list_of_examples_is_complete() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in EXAMPLES.glob("*.[pc]*") if f"({path.name})" not in listed]
    assert [name for name in missing if not name.startswith("__")] == []
