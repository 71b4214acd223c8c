"""torchvision whose compiled operators do not load, repaired; a healthy one, left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# `bare`: as it is. `repair`: repaired first. `hidden`: not installed. `late`: imported already.
TELL = """
import json, sys
how, folder = sys.argv[1:]
sys.path.insert(0, folder)
if how == "hidden":
    sys.modules["torchvision"] = None
if how == "late":
    import torchvision
from torchstone.workloads.suites.vision import repair_torchvision
said = [] if how == "bare" else [repair_torchvision(), repair_torchvision()]
facts = {"said": said, "torch": "torch" in sys.modules, "early": "torchvision" in sys.modules}
try:
    import torchvision
    facts["import"] = "ok"
except Exception as error:
    facts["import"] = str(error)
said += [] if how == "bare" else [repair_torchvision()]
if "torch" in sys.modules:
    import torch
    facts["names"] = [n for n in ("nms", "qnms") if hasattr(torch.ops.torchvision, n)]
print(json.dumps(facts))
"""

# What torchvision does at import: swallow the failure, then need the names.
FAKE = """
import os, torch
for name in sorted(os.listdir(os.path.dirname(__file__))):
    if name.startswith("_C"):
        try:
            torch.ops.load_library(os.path.join(os.path.dirname(__file__), name))
        except OSError:
            pass

@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold):
    return dets
"""

REGISTERS = """
#include <torch/csrc/stable/library.h>
STABLE_TORCH_LIBRARY(torchvision, m) {
  m.def("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor");
  m.def("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor");
}
"""


@dataclass(frozen=True)
class Told:
    """What a fresh process says."""

    said: list[str]
    torch: bool
    early: bool
    imported: str
    names: list[str]


def tell(how: str, folder: Path | str) -> Told:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TELL, how, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Told(
        facts["said"], facts["torch"], facts["early"], facts["import"], facts.get("names", [])
    )


def fake_torchvision(folder: Path) -> Path:
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE)
    return package


def compiler() -> str:
    found = shutil.which("c++") or shutil.which("g++")
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def compile_library(source: str, path: Path, *options: str) -> None:
    file = path.with_suffix(".cpp")
    file.write_text(source)
    subprocess.run(
        [compiler(), "-shared", "-fPIC", str(file), "-o", str(path), *options], check=True
    )
    file.unlink()


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
@pytest.mark.slow
def test_the_torchvision_that_is_installed_can_be_imported(tmp_path: Path) -> None:
    bare, repaired = tell("bare", tmp_path), tell("repair", tmp_path)
    assert repaired.imported == "ok"
    assert repaired.names == ["nms", "qnms"]
    assert not repaired.early, "the repair must not import torchvision"
    assert len(set(repaired.said)) == 1, "the same answer each time"
    if bare.imported == "ok":
        assert repaired.said[0] == ""
    else:
        assert "nms does not exist" in bare.imported
        assert "torchvision::nms and torchvision::qnms were declared" in repaired.said[0]
        assert "cannot open shared object file" in repaired.said[0]
        assert str(Path(sys.prefix)) not in repaired.said[0], "no path of this machine"


@pytest.mark.slow
def test_operators_that_do_not_load_are_declared(tmp_path: Path) -> None:
    (fake_torchvision(tmp_path) / "_C.so").write_bytes(b"not a library")
    assert "nms does not exist" in tell("bare", tmp_path).imported
    told = tell("repair", tmp_path)
    assert told.imported == "ok"
    assert told.said[0].count("_C.so") == 1
    assert str(tmp_path) not in told.said[0]
    assert len(set(told.said)) == 1


@pytest.mark.slow
def test_operators_that_load_are_left_alone(tmp_path: Path) -> None:
    compile_library("int nothing() { return 0; }", fake_torchvision(tmp_path) / "_C.so")
    told = tell("repair", tmp_path)
    assert set(told.said) == {""}
    assert told.names == []


def test_nothing_is_done_where_torchvision_is_not_installed(tmp_path: Path) -> None:
    told = tell("hidden", tmp_path)
    assert set(told.said) == {""}
    assert not told.torch, "torch was imported for nothing"


@pytest.mark.slow
def test_operators_that_were_never_compiled_are_declared(tmp_path: Path) -> None:
    fake_torchvision(tmp_path)
    told = tell("repair", tmp_path)
    assert told.imported == "ok"
    assert "(they are not installed)" in told.said[0]


@pytest.mark.slow
def test_it_is_too_late_after_the_import(tmp_path: Path) -> None:
    (fake_torchvision(tmp_path) / "_C.so").write_bytes(b"not a library")
    (tmp_path / "torchvision" / "__init__.py").write_text("")
    told = tell("late", tmp_path)
    assert set(told.said) == {""}
    assert told.names == []


@pytest.mark.slow
def test_operators_that_moved_to_another_file_are_not_declared_twice(tmp_path: Path) -> None:
    """From 0.29 on `_C_stable` holds them; to declare them first would end the process."""
    torch = pytest.importorskip("torch")
    where = Path(torch.__file__).parent
    package = fake_torchvision(tmp_path)
    compile_library(
        REGISTERS,
        package / "_C_stable.so",
        "-std=c++20",
        f"-I{where / 'include'}",
        f"-L{where / 'lib'}",
        f"-Wl,-rpath,{where / 'lib'}",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
    )
    told = tell("repair", tmp_path)
    assert (set(told.said), told.imported, told.names) == ({""}, "ok", ["nms", "qnms"])
    (package / "_C.so").write_bytes(b"not a library")
    told = tell("repair", tmp_path)
    assert (set(told.said), told.imported, told.names) == ({""}, "ok", ["nms", "qnms"])
