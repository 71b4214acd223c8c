"""Recipes: plain Python that needs nothing of ours, made of the code that was measured."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchstone.records import (
    ArmSpec,
    Decision,
    Environment,
    Experiment,
    Stage,
    Tuning,
    UsageError,
)
from torchstone.tuning.recipe import recipe_text
from torchstone.variants import check_variant, resolve_variant
from torchstone.variants.registry import find_recipe, read_constants
from torchstone.variants.techniques import TECHNIQUES
from torchstone.workloads import Inputs

BASE = ArmSpec("baseline", "x.py:make")
APPLY = """
import importlib.util, json, sys, torch
spec = importlib.util.spec_from_file_location("recipe", sys.argv[1])
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)
assert not any(name.startswith("torchstone") for name in sys.modules)
recipe.prepare()
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
model.eval()
x = torch.randn(2, 3, 16, 16)
with torch.no_grad():
    before = model(x)
    after = recipe.apply(model)(x)
print(json.dumps({
    "close": torch.allclose(before, after, atol=1e-5),
    "same type": type(model).__name__,
    "last": after.is_contiguous(memory_format=torch.channels_last),
    "folded": isinstance(model[1], torch.nn.Identity),
    "threads": torch.get_num_threads(),
}))
"""


def tuning(*names: str, base: ArmSpec = BASE) -> Tuning:
    steps = tuple(
        Experiment(Stage.SELECT, name, Decision.ADOPTED, time_ratio=0.8, interval=(0.78, 0.82))
        for name in names
    )
    confirmed = replace(steps[0], stage=Stage.CONFIRM, technique="recipe", time_ratio=0.64)
    machine = Environment("m", torch={"version": "2.13.0"}, python={"version": "3.11.7"})
    return Tuning(
        "1abc",
        "2026-11-18T05:00:00+00:00",
        base,
        experiments=(*steps, confirmed),
        adopted=names,
        environment=machine,
        version="0.1.0",
    )


def test_a_recipe_applies_what_was_adopted_and_needs_nothing_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    names = ("fold_batchnorm", "channels_last", "threads_one", "inference_mode")
    path = tmp_path / "recipe.py"
    path.write_text(recipe_text(tuning(*names), names), encoding="utf-8")
    assert "torchstone" not in ast.unparse(ast.parse(path.read_text()).body[1:])
    done = subprocess.run(
        [sys.executable, "-c", APPLY, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "close": True,
        "same type": "Sequential",
        "last": True,
        "folded": True,
        "threads": 1,
    }


def test_the_docstring_has_gain_versions_and_what_may_break() -> None:
    names = ("channels_last", "compile_freezing", "omp_passive", "allocator_keep")
    text = recipe_text(tuning(*names), names)
    said = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    for word in (
        "1.56 times as fast",
        "torch 2.13.0",
        "Python 3.11.7",
        "weights that change later are not seen",
        "OMP_WAIT_POLICY=passive",
        "MALLOC_",
        "1.25 times as fast, 1.22 to 1.28",
    ):
        assert word in said, word


def test_every_built_in_technique_can_be_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source compiles by itself, and its arguments fit the function."""
    # The text is the same wherever the allocators lie, and they need not be installed here.
    monkeypatch.setattr("torchstone.machine.memory._find", "/usr/lib/lib{}.so".format)
    for name in TECHNIQUES:
        if TECHNIQUES.source(name) != "torchstone":
            continue
        mode = TECHNIQUES[name].modes[0]
        base = replace(BASE, mode=mode)
        text = recipe_text(tuning(name, base=base), (name,))
        tree = ast.parse(text)
        functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        assert {"prepare", "apply"} <= functions
        calls = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        code = {one.function.__name__ for one in TECHNIQUES[name].code}
        assert code <= functions & calls, name
        compile(text, name, "exec")


def test_a_recipe_is_a_variant(tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    path.write_text(recipe_text(tuning("compile"), ("compile",)), encoding="utf-8")
    check_variant(f"recipe:{path}", tuple)
    found = resolve_variant(f"recipe:{path}")
    assert "memory_format" in found.changes
    assert "torch._dynamo" in getattr(found, "modules", ())
    assert read_constants(str(path))["TECHNIQUES"] == ("compile",)


def test_a_recipe_for_larger_batches_says_so_and_is_measured_with_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "recipe.py"
    text = recipe_text(tuning("larger_batch_8"), ("larger_batch_8",))
    path.write_text(text, encoding="utf-8")
    assert "Give the model batches 8 times as large." in text
    sizes: list[int] = []

    def model(x: Any) -> Any:
        sizes.append(len(x))
        return x * 2

    example = Inputs((torch.ones(4, 2),))
    made = find_recipe(f"recipe:{path}").apply(model, example, BASE).call
    assert torch.equal(made(*example.args), torch.full((4, 2), 2.0))
    assert sizes == [32]


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read"), ("def f(:", "not valid Python"), ("x = 1", "no function `apply`")],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "recipe.py"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        check_variant(f"recipe:{path}", tuple)
