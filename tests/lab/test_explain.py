"""`explain` as a use case: real processes, from target to findings to a test of one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.explain import ledger_synthetic, synthetic
from tests.targets.support import HONEST, target
from torchstone.conductor import Settings
from torchstone.conductor.case import Silent
from torchstone.explain.findings import base as findings
from torchstone.explain.findings.hardware import idle_cores
from torchstone.explain.findings.python import garbage_collection, sleep
from torchstone.explain.passes.report import Passes
from torchstone.lab.explain import (
    INTERRUPTED,
    TEST_REPLICATES,
    ExplainRequest,
    _verified,
    explain_difference,
    explain_target,
    put_to_test,
    roofline_of_stored,
    roofline_of_target,
    verify_command,
    was_interrupted,
)
from torchstone.lab.explain import _calibration_explain as _calibration
from torchstone.lab.peaks import known_peaks, with_peaks
from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest
from torchstone.machine.calibrate import fingerprint
from torchstone.machine.calibrate.request import own_machine_id
from torchstone.records import (
    ArmSpec,
    Calibration,
    Prediction,
    Remedy,
    Result,
    TorchstoneError,
    UsageError,
)
from torchstone.show.ledger import ledger_dumps
from torchstone.store import open_store

LITTER = """
import time

ALIVE = [[number] for number in range(150_000)]

def step():
    for _ in range(4000):
        pair = []
        pair.append(pair)
    time.sleep(0.001)
"""
SHORT = Settings(budget_s=1.0, replicates=2)


@pytest.fixture
def request_(tmp_path: Path) -> ExplainRequest:
    path = tmp_path / "litter.py"
    path.write_text(LITTER, encoding="utf-8")
    bench = BenchRequest(targets=(f"{path}:step()",), settings=SHORT, env=(("TOKEN", "s3cret-x"),))
    return ExplainRequest(bench, budget_s=0.8, verify_budget_s=1.0)


@pytest.mark.slow
def test_the_first_ledger_is_kept_where_the_second_cannot_be_made(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    db = str(tmp_path / "kept.db")
    request = ExplainRequest(
        BenchRequest(targets=(target("nets"),), settings=SHORT), vs="cudagraphs", budget_s=0.2
    )
    with pytest.raises(TorchstoneError, match="CUDA"):
        explain_difference(request, Recorder(db))
    with open_store(db, read_only=True) as store:
        (one,) = store.list_ledgers()
    assert one.variant == "eager"


@pytest.mark.slow
def test_from_a_target_to_a_tested_prediction(
    request_: ExplainRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "known_findings", lambda: [sleep, garbage_collection])
    found = explain_target(ExplainRequest(request_.bench, "", 0.8, True, 1.0))
    assert found.arm.env == (("TOKEN", "(hidden)"),)
    assert found.share("collector") > 0.2
    names = [one.name for one in found.findings]
    assert "garbage-collection" in names
    tests = {one.finding: one for one in found.verifications}
    assert set(tests) == set(names)
    assert tests["garbage-collection"].measured is not None
    assert tests["garbage-collection"].measured < 1
    if "sleep" in tests:
        assert "Not tested" in tests["sleep"].sentence


@pytest.mark.parametrize("asked", [None, 3])
def test_a_prediction_is_tested_with_a_fixed_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, asked: int | None
) -> None:
    """Else slow starts would end it after three, whose interval decides nothing."""
    seen: list[Settings] = []

    def measure(arms: Any, settings: Settings, *_: Any) -> Any:
        seen.append(settings)
        raise UsageError("Enough.")

    monkeypatch.setattr("torchstone.lab.explain.measure", measure)
    shares = {"kernels": 0.9, "sleep": 0.1}
    ledger = ledger_synthetic.ledger(shares, facts={"threads": "1", "cores": "2"})
    found = idle_cores.look(ledger)
    assert found is not None
    put_to_test(ArmSpec("x", "x.py:make"), found, Settings(replicates=asked))
    assert [one.replicates for one in seen] == [asked or TEST_REPLICATES]


def test_what_verifies_can_be_asked_for_again() -> None:
    arm = ArmSpec(
        "inductor",
        "model.py:make",
        "inductor",
        mode="training",
        precision="bf16",
        threads=2,
        env=(("TOKEN", "s3cret-x"), ("OMP_PROC_BIND", "true")),
        allocator="keep",
    )
    words = " ".join(verify_command(arm, Settings(budget_s=3.0)))
    assert words.startswith("torchstone explain model.py:make --variant inductor --mode training")
    for part in ("--precision bf16", "--threads 2", "--allocator keep", "--budget 3s", "--verify"):
        assert part in words
    assert "--env TOKEN=(hidden)" in words
    assert "s3cret" not in words


def test_a_difference_needs_something_to_differ_from(request_: ExplainRequest) -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        explain_difference(request_)


@pytest.mark.parametrize(("variant", "vs"), [("inductor", "inductor+dynamic"), ("eager", "")])
def test_the_base_is_the_variant_that_was_asked_for(
    request_: ExplainRequest, monkeypatch: pytest.MonkeyPatch, variant: str, vs: str
) -> None:
    """And what a remedy is measured against is that arm, not eager."""
    arms: list[ArmSpec] = []
    tested: list[tuple[ArmSpec, ...]] = []
    commands: list[tuple[str, ...]] = []

    def looked(arm: ArmSpec, *_: object) -> Passes:
        arms.append(arm)
        return ledger_synthetic.passes()

    def measured(pair: tuple[ArmSpec, ...], *more: Any) -> Result:
        tested.append(pair)
        commands.append(more[3])
        raise UsageError("enough")

    monkeypatch.setattr("torchstone.lab.explain.run_passes_of", looked)
    monkeypatch.setattr("torchstone.lab.explain.measure", measured)
    monkeypatch.setattr(findings, "known_findings", lambda: [idle_cores])
    request = replace(request_, variant=variant, vs=vs, verify=True)
    if vs:
        found = explain_difference(request)
        data = json.loads(ledger_dumps(found))
        assert (data["base"]["arm"]["variant"], data["new"]["arm"]["variant"]) == (variant, vs)
    else:
        assert explain_target(request).arm.variant == variant
    assert [arm.variant for arm in arms] == [variant, *([vs] if vs else [])]
    ((base, remedied),) = tested
    assert base.variant == remedied.variant == (vs or variant)
    assert (base.threads, remedied.threads) == (None, 4)
    asked = f"--variant {vs}" if vs else "--budget"
    assert asked in " ".join(commands[0])


def test_one_compiled_arm_is_looked_at_alone(
    request_: ExplainRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(arm: ArmSpec, *_: object) -> Passes:
        looked.append(arm.variant)
        return ledger_synthetic.passes()

    monkeypatch.setattr("torchstone.lab.explain.run_passes_of", look)
    found = explain_target(replace(request_, variant="inductor"))
    assert looked == ["inductor"]
    assert (found.arm.name, found.arm.variant) == ("inductor", "inductor")


def test_a_variant_that_does_not_exist_is_found_before_anything_is_started(
    request_: ExplainRequest,
) -> None:
    with pytest.raises(UsageError, match="no variant"):
        explain_difference(ExplainRequest(request_.bench, "nonsense"))
    with pytest.raises(UsageError, match="no variant"):
        explain_target(replace(request_, variant="nonsense"))


class CtrlC(Silent):
    """Pressed in the first part of the first test; what is tested is written down."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def phase(self, text: str) -> None:
        self.heard.append(text)
        if not text.startswith("testing"):
            raise KeyboardInterrupt


def test_ctrl_c_ends_the_tests_of_all_findings() -> None:
    def finding(name: str, remedy: Remedy) -> Prediction:
        return Prediction(name, 1, name, "", "", 1e-3, (0.5, 0.9), remedy)

    names = ("first", "second", "third")
    remedies = (Remedy(threads=1), Remedy(), Remedy(threads=2))
    found = ledger_synthetic.ledger(findings=tuple(map(finding, names, remedies)))
    assert not was_interrupted(found)
    request = ExplainRequest(BenchRequest(targets=(HONEST,), settings=SHORT))
    events = CtrlC()
    tested = _verified(found, ArmSpec("eager", HONEST), request, None, events)
    assert [text for text in events.heard if text.startswith("testing")] == ["testing: first"]
    said = [(one.finding, one.sentence) for one in tested.verifications]
    assert said[0] == ("first", INTERRUPTED)
    assert said[1] == ("second", "Not tested: no remedy can be applied by itself.")
    assert said[2] == ("third", INTERRUPTED)
    assert was_interrupted(tested)


# Peaks that do not hold any more


def ceilings(**changes: str) -> Calibration:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    fresh = {"fingerprint": fingerprint("cpu"), "created": now, "machine_id": own_machine_id()}
    return synthetic.calibration(**{**fresh, **changes})


def kept_with(db: Path, calibration: Calibration) -> Result:
    """A result of this machine, and apart from it these peaks."""
    counted = synthetic.arm(synthetic.flops(60_000_000, 20 << 20, 4 << 20))
    ours = replace(synthetic.environment(), machine_id=own_machine_id())
    made = replace(synthetic.result(replace(counted, environment=ours)), calibration=None)
    with open_store(str(db)) as store:
        store.save(made)
        store.save_calibration(calibration)
    return made


OLD = {"created": "2024-02-03T00:00:00+00:00"}


@pytest.mark.parametrize("changes", [OLD, {"fingerprint": "of another torch"}])
def test_stale_roofs_are_told_by_explain_as_they_are_left_out_by_bench(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    db = tmp_path / "kept.db"
    stale = ceilings(**changes)
    made, recorder = kept_with(db, stale), Recorder(str(db))
    _, words = known_peaks(recorder, own_machine_id(), "cpu")
    assert words.startswith(f"The peaks measured on {stale.created[:10]} are stale")
    assert with_peaks(made, recorder).calibration is None
    none, note = _calibration(ArmSpec("eager", HONEST), recorder)
    assert none is None
    assert words in note
    assert "torchstone doctor --calibrate" in note
    last = roofline_of_stored(made.id, db=str(db)).notes[-1]
    assert words in last
    assert "torchstone doctor --calibrate" in last
    with pytest.raises(UsageError, match="are stale") as caught:
        roofline_of_target(
            BenchRequest(targets=(target("no_such"),)), Recorder(str(db), saves=False)
        )
    assert "torchstone doctor --calibrate" in caught.value.remedy


def test_roofs_that_hold_are_used_without_a_word(tmp_path: Path) -> None:
    db = tmp_path / "kept.db"
    made, recorder = kept_with(db, ceilings()), Recorder(str(db))
    assert with_peaks(made, recorder).calibration is not None
    found, note = _calibration(ArmSpec("eager", HONEST), recorder)
    assert found is not None
    assert note == ""
    assert "stale" not in " ".join(roofline_of_stored(made.id, db=str(db)).notes)
