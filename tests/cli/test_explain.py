"""`torchstone explain`: from the store, from a target, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.explain.ledger_synthetic import ledger
from tests.explain.synthetic import MIB, arm, calibration, flops, result
from tests.targets.support import target, torchstone
from torchstone.cli.app import cli
from torchstone.lab.explain import INTERRUPTED
from torchstone.machine.calibrate import fingerprint
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.machine.software import machine_id
from torchstone.records import UsageError, Verification
from torchstone.store import open_store


@pytest.fixture
def kept(tmp_path: Path) -> tuple[str, str]:
    """A database with a counted result and, apart from it, the peaks of its machine."""
    db = str(tmp_path / "kept.db")
    counted = arm(flops(60_000_000, 20 * MIB, 4 * MIB))
    stored = replace(
        result(counted, replace(counted, arm=replace(counted.arm, name="b"))), calibration=None
    )
    with open_store(db) as store:
        store.save(stored)
        store.save_calibration(calibration())
    return db, stored.id


def test_a_stored_result_is_drawn_from_its_record(kept: tuple[str, str], tmp_path: Path) -> None:
    db, name = kept
    picture = tmp_path / "x.svg"
    done = torchstone("explain", name, "--roofline", "--out", str(picture), "--db", db)
    assert done.returncode == 0, done.stderr
    assert "Bound by compute" in done.stdout
    assert "DRAM 20.0 GB/s" in done.stdout
    assert str(picture) in done.stdout
    assert "\x1b" not in done.stdout
    ET.fromstring(picture.read_text(encoding="utf-8"))


def test_json_alone_and_another_arm(kept: tuple[str, str]) -> None:
    done = torchstone("explain", "last", "--arm", "b", "--json", "-", "--db", kept[0])
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["kind"], data["arm"], data["bound"]) == ("roofline", "b", "compute")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("last", "--out", "x.png"), "does not end in .svg"),
        (("last", "--out", "/no/such/folder/x.svg"), "There is no folder /no/such/folder"),
        (("last", "--threads", "1"), "--threads is for a target"),
        (("last", "--arm", "third"), "no arm 'third'"),
        (("nosuch",), "no result"),
        ((f"{target('nets')}", "--arm", "b"), "--arm is for a stored result"),
        ((f"{target('nets')}", "--roofline"), "doctor --calibrate"),
        ((f"{target('nets')}", "--roofline", "--verify"), "--verify is for the ledger"),
        ((f"{target('nets')}", "--out", "x.svg"), "--out is for --roofline"),
        (("last", "--vs", "inductor"), "--vs is for a target"),
        (("last", "--variant", "inductor"), "--variant is for a target"),
        (
            (f"{target('nets')}", "--roofline", "--variant", "inductor"),
            "--variant is for the ledger",
        ),
        ((f"{target('nets')}", "--variant", "nonsense", "--no-save"), "no variant 'nonsense'"),
    ],
)
def test_a_request_that_cannot_be_met(
    kept: tuple[str, str], words: tuple[str, ...], said: str
) -> None:
    """The last: the database knows the peaks of another machine only."""
    with pytest.raises(UsageError) as error:
        cli.main(["explain", *words, "--db", kept[0]], standalone_mode=False)
    assert said in f"{error.value.message} {error.value.remedy}"


@pytest.mark.slow
def test_a_target_is_measured_and_kept(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    db = str(tmp_path / "kept.db")
    here = machine_id(describe_cpu(), cache_sizes(), memory_bytes())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    ceilings = calibration(machine_id=here, fingerprint=fingerprint("cpu"), created=now)
    one = tuple(replace(peak, threads=1, value=peak.value * 1000) for peak in ceilings.compute)
    bands = tuple(replace(peak, threads=1, value=peak.value * 1000) for peak in ceilings.bandwidth)
    with open_store(db) as store:
        store.save_calibration(replace(ceilings, compute=one, bandwidth=bands))
    words = ("--threads", "1", "--budget", "0.2s", "--json", "-", "--db", db)
    done = torchstone("explain", target("nets"), "--roofline", *words)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["points"][0]["flops"] == 2 * 4 * 32 * 64 + 2 * 4 * 64 * 8
    assert data["bound"] == "neither: overhead"  # a tiny net under peaks a thousand times too high
    again = torchstone("explain", data["result_id"], "--json", "-", "--db", db)
    assert json.loads(again.stdout)["points"] == data["points"]


@pytest.mark.slow
def test_the_ledger_of_a_target(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    db, path = str(tmp_path / "kept.db"), tmp_path / "ledger.json"
    words = ("--threads", "1", "--budget", "1s", "--json", str(path), "--db", db)
    done = torchstone("explain", target("nets"), *words)
    assert done.returncode == 0, done.stderr
    assert "3 PyTorch back end" in done.stdout
    assert "not explained" in done.stdout
    data = json.loads(path.read_text(encoding="utf-8"))
    shares = [line["share"] for line in data["lines"] if line["level"] <= 3]
    assert sum(shares) == pytest.approx(1.0)
    assert f"torchstone show {data['id']}" in done.stdout
    again = torchstone("show", data["id"][:9], "--json", "-", "--db", db)
    assert json.loads(again.stdout) == data
    listed = torchstone("list", "ledgers", "--db", db)
    assert data["id"] in listed.stdout
    assert "nets.py" in listed.stdout


LITTER = """
import torch

ALIVE = [[number] for number in range(150_000)]


@torch.compiler.disable
def litter():
    for _ in range(4000):
        pair = []
        pair.append(pair)


class Net(torch.nn.Module):
    def forward(self, x):
        litter()
        return torch.relu(x) + 1


def make():
    return Net(), (torch.randn(64),)
"""


@pytest.mark.slow
def test_a_difference_with_its_findings_tested(tmp_path: Path) -> None:
    """The findings that are printed are the ones whose remedies were tried."""
    pytest.importorskip("torch")
    (tmp_path / "litter.py").write_text(LITTER, encoding="utf-8")
    db, path = str(tmp_path / "kept.db"), tmp_path / "both.json"
    words = ("--threads", "1", "--budget", "1s", "--json", str(path), "--db", db)
    name = f"{tmp_path / 'litter.py'}:make"
    done = torchstone("explain", name, "--vs", "aot_eager", "--verify", *words, timeout=600)
    assert done.returncode == 0, done.stderr
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["base"]["verifications"] == []
    tested = {one["finding"]: one for one in data["new"]["verifications"]}
    assert set(tested) == {one["name"] for one in data["new"]["findings"]}
    collector = tested["garbage-collection"]
    assert collector["measured"] < 1
    printed = " ".join(done.stdout.split("What would help under aot_eager:")[1].split())
    assert collector["sentence"] in printed
    assert any("litter" in place["file"] for place in data["new"]["breaks"])
    with open_store(db) as store:
        kept = store.load(collector["result_id"])
    assert "--variant aot_eager" in " ".join(kept.command)


def test_a_target_that_dies_is_no_mistake_of_the_request(tmp_path: Path) -> None:
    done = torchstone("explain", target("deaths", "segfault"), "--no-save", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be explained: crash" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("sentence", "code"), [(INTERRUPTED, 130), ("Not tested: no.", 0)])
def test_tests_that_were_interrupted_are_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, sentence: str, code: int
) -> None:
    found = ledger(verifications=(Verification("sleep", (0.5, 1.0), sentence=sentence),))
    monkeypatch.setattr("torchstone.lab.explain.explain_target", lambda *words: found)
    words = ["explain", "model.py:make", "--verify", "--no-save"]
    assert cli.main(words, standalone_mode=False) == code
