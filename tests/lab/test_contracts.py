"""`contract write` and `contract check`: what is promised, at the edges too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.targets.support import target, torchstone

CASES = ["batch of one", "empty batch", "non-contiguous", "wrong dtype", "wrong device"]


def test_a_target_without_tensors_is_kept_or_broken(tmp_path: Path) -> None:
    code = "def make():\n    return (lambda x: {y}), lambda seed: (seed,)\n"
    (tmp_path / "t.py").write_text(code.format(y="x * 2"))
    written = torchstone("contract", "write", "t.py:make", "c.json", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["schema"] == 1
    assert document["boundary"]["eager"] == dict.fromkeys(CASES, "does not apply")
    kept = torchstone("contract", "check", "t.py:make", "c.json", "--json", cwd=tmp_path)
    assert kept.returncode == 0, kept.stderr
    document = json.loads(kept.stdout)
    assert set(document) == {"schema", "arms", "comparisons", "checks"}
    assert {check["level"] for check in document["checks"]} == {"ok"}
    assert {"contract: inputs", "contract: outputs"} <= {c["rule"] for c in document["checks"]}
    (tmp_path / "t.py").write_text(code.format(y="x / 2"))
    broken = torchstone("contract", "check", "t.py:make", "c.json", cwd=tmp_path)
    assert broken.returncode == 1, broken.stderr
    assert "output: expected int64[], got float64[]" in broken.stdout
    (tmp_path / "t.py").write_text(code.format(y="1 // 0"))
    dead = torchstone("contract", "check", "t.py:make", "c.json", cwd=tmp_path)
    assert dead.returncode == 1, dead.stderr
    assert "ZeroDivisionError" in dead.stdout


@pytest.mark.slow
def test_boundary_cases_are_recorded_and_one_that_kills_costs_no_other(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    fragile = target("nets", "make_fragile")
    done = torchstone("contract", "write", fragile, str(file), "--vs", "aot_eager", timeout=300)
    assert done.returncode == 0, done.stderr
    boundary = json.loads(file.read_text())["boundary"]
    assert set(boundary) == {"eager", "aot_eager"}
    eager = boundary["eager"]
    assert sorted(eager) == sorted(CASES)
    assert eager["batch of one"] == "output.logits float32[1,8]"
    assert eager["empty batch"].startswith("crash: killed by SIGSEGV")
    assert eager["non-contiguous"] == "output.logits float32[4,8]"
    assert "RuntimeError" in eager["wrong dtype"]
    checked = torchstone("contract", "check", fragile, str(file), timeout=300)
    assert checked.returncode == 0, checked.stdout
