"""Data made while a target's file is imported are the same in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.targets.support import ROOT

LOAD = """
import json, sys
from torchstone.records import ArmSpec
from torchstone.workloads import load_workload
if sys.argv[1] == "ahead":
    import numpy, random, torch
    random.random(), numpy.random.rand(), torch.rand(1)
for seed, file in enumerate(sys.argv[2:]):
    arm = ArmSpec("data", file + ":data()", seed=seed)
    print(json.dumps(load_workload(arm, lambda phase: None).call()))
assert not [f for f in sys.meta_path if type(f).__name__ == "_SeedingFinder"]
"""
DATA = """
import random
EARLY = random.random()
import numpy as np
LEGACY = np.random.rand()
import torch
X = torch.randn(3).tolist()
LATE = random.random()

def data():
    return [EARLY, LEGACY, X, LATE]
"""


def drawn(libraries: str, *files: Path) -> list[list[object]]:
    """What each file draws, the first with the seed 0, the next with 1, …: a process takes long to
    import torch."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, libraries, *map(str, files)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_data_at_module_level_are_seeded_however_libraries_come(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "data.py"
    file.write_text(DATA)
    copy = tmp_path / "copy.py"
    copy.write_text(DATA)
    (first,) = drawn("by the file", file)
    again, other = drawn("ahead", file, copy)
    assert again == first  # as in a compiled arm, whose variant imports torch
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_a_module_of_that_name_without_a_generator_is_imported_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "torch.py").write_text("ANSWER = 42\n")
    file = tmp_path / "stub.py"
    file.write_text("import torch\n\ndef data():\n    return [torch.ANSWER]\n")
    assert drawn("by the file", file) == [[42]]
