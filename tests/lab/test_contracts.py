"""`contract write` and `contract check`: what is promised, at the edges too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.targets.support import HONEST, target, torchstone
from torchstone.cli.contract import contract
from torchstone.conductor.run import Inspection
from torchstone.lab.contracts import hold
from torchstone.records import ArmSpec, Contract, Leaf, Measurement, Outcome, OutcomeDetail

CASES = ["batch of one", "empty batch", "non-contiguous", "wrong dtype", "wrong device"]


@pytest.mark.slow
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


def leaf(path: str, rows: int = 4, device: str = "cpu") -> Leaf:
    return Leaf(path, "torch", "float32", (rows, 8), device, type_name="torch.Tensor")


def on(device: str, name: str, outputs: int = 4, **boundary: str) -> Inspection:
    """An arm as the workers describe it; `device` need not be here."""
    index = "cpu" if device == "cpu" else f"{device}:0"
    found = Contract((leaf("input.0", device=index),), (leaf("output", outputs, index),))
    where = "" if device == "cpu" else f" on {index}"
    known = {
        "batch of one": f"output float32[1,8]{where}",
        "wrong dtype": "RuntimeError: expected Float" if where else "RuntimeError: mat1 and mat2",
        "wrong device": "RuntimeError: all on one device" if where else "RuntimeError: meta",
    }
    spec = ArmSpec(name, "m.py:make", device=device)
    return Inspection(Measurement(spec, Outcome.OK, contract=found), {**known, **boundary})


def broken(*arms: Inspection) -> list[tuple[str, str]]:
    home = arms[0].measurement.contract
    assert home is not None
    found = hold(arms, home, {"eager": arms[0].boundary})
    return [(finding.arm, finding.subject) for finding in found if not finding.ok]


def test_an_accelerator_can_keep_the_contract_of_the_cpu() -> None:
    assert broken(on("cpu", "eager"), on("cuda", "cuda")) == []


def test_an_accelerator_that_breaks_it_is_named() -> None:
    eager = on("cpu", "eager")
    other = on("cuda", "cuda", 5, **{"batch of one": "output float32[2,8] on cuda:0"})
    assert broken(eager, other) == [("cuda", "outputs"), ("cuda", "batch of one")]
    lenient = on("cuda", "cuda", **{"wrong dtype": "output float32[4,8] on cuda:0"})
    assert broken(eager, lenient) == [("cuda", "wrong dtype")]


def test_at_home_the_device_and_every_word_count() -> None:
    eager = on("cpu", "eager")
    moved = on("cuda", "again")
    spec = replace(moved.measurement.arm, device="cpu")
    moved = replace(moved, measurement=replace(moved.measurement, arm=spec))
    subjects = [subject for _, subject in broken(eager, moved)]
    assert subjects == ["inputs", "outputs", "batch of one", "wrong dtype", "wrong device"]


def test_a_variant_without_an_entry_of_its_own_is_held_to_what_eager_does() -> None:
    eager = on("cpu", "eager")
    spec = replace(eager.measurement.arm, name="aot_eager", variant="aot_eager")
    words = {**eager.boundary, "wrong dtype": "TorchRuntimeError: other words"}
    other = Inspection(replace(eager.measurement, arm=spec), words)
    home = eager.measurement.contract
    assert home is not None
    # An older version wrote an empty entry for a variant that had not run.
    found = hold((eager, other), home, {"eager": eager.boundary, "aot_eager": {}})
    assert [finding for finding in found if not finding.ok] == []


@pytest.fixture
def inspected(monkeypatch: pytest.MonkeyPatch) -> list[ArmSpec]:
    """The arms that were asked for; all run as `on` says, but aot_eager, which crashes."""
    asked: list[ArmSpec] = []

    def inspect(arms: tuple[ArmSpec, ...], *_: object) -> list[Inspection]:
        asked.extend(arms)
        made = []
        for spec in arms:
            one = on(spec.device, spec.name)
            measurement = replace(one.measurement, arm=spec)
            if spec.variant == "aot_eager":
                detail = OutcomeDetail("killed by SIGSEGV\x1b[2J")
                measurement = Measurement(spec, Outcome.CRASH, detail)
            made.append(Inspection(measurement, one.boundary if measurement.contract else {}))
        return made

    monkeypatch.setattr("torchstone.lab.contracts.inspect_arms", inspect)
    return asked


def test_a_variant_that_did_not_run_is_named_and_left_out(
    tmp_path: Path, inspected: list[ArmSpec]
) -> None:
    file = tmp_path / "c.json"
    words = ["write", HONEST, str(file), "--vs", "aot_eager", "--vs", "inductor"]
    done = CliRunner().invoke(contract, words, standalone_mode=False)
    assert done.exception is None, done.exception
    assert done.return_value == 1
    assert f"aot_eager is not in {file}: crash: killed by SIGSEGV" in done.stderr
    assert "\x1b" not in done.output
    assert set(json.loads(file.read_text())["boundary"]) == {"eager", "inductor"}
    done = CliRunner().invoke(contract, words[:3], standalone_mode=False)
    assert done.return_value == 0


def test_a_contract_is_written_on_the_cpu_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    done = torchstone("contract", "write", HONEST, str(file), "--device", "cuda")
    assert done.returncode == 2
    assert "written on the CPU, not on cuda" in done.stderr
    assert not file.exists()


def test_every_variant_is_held_to_the_contract_on_the_device_too(
    tmp_path: Path, inspected: list[ArmSpec]
) -> None:
    file = str(tmp_path / "c.json")
    CliRunner().invoke(contract, ["write", HONEST, file], standalone_mode=False)
    inspected.clear()
    words = ["check", HONEST, file, "--vs", "inductor", "--device", "cuda"]
    done = CliRunner().invoke(contract, words, standalone_mode=False)
    assert done.return_value == 0, done.output
    assert [(arm.name, arm.variant, arm.device) for arm in inspected] == [
        ("eager", "eager", "cpu"),
        ("inductor", "inductor", "cpu"),
        ("cuda", "eager", "cuda"),
        ("inductor cuda", "inductor", "cuda"),
    ]


LEAKS = """
import os, torch

class Model(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 1:
            place = "https://bob:hunter2hunter2@db.example/x"
            raise RuntimeError(f"cannot reach {place} as " + os.environ["HF_TOKEN"])
        if x.shape[0] == 0:
            raise RuntimeError("x" * 130 + " https://bob:hunter2hunter2@db.example/x")
        return {"\\x1b[2J": x * 2}

def make():
    return Model(), (torch.randn(4, 8),)
"""


@pytest.mark.slow
def test_what_a_model_says_at_the_edges_is_kept_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(LEAKS)
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    words = ("contract", "write", "m.py:make", "c.json")
    done = torchstone(*words, cwd=tmp_path, HF_TOKEN=token)
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / "c.json").read_text()):
        assert "cannot reach https://" in text
        assert "xxxxx" in text
        assert token not in text
        assert "bob" not in text
    assert "\x1b" not in done.stdout


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
