"""Peak memory of an arm: the size it is known to have, and the ratio of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import settings, target
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import solo_pass
from torchstone.conductor.state import ArmState
from torchstone.records import ArmSpec, Memory

pytestmark = pytest.mark.slow
MIB = 2**20


def measured(launcher: Launcher, factory: str) -> Memory:
    state = ArmState(ArmSpec(factory, target("memory", factory)))
    assert solo_pass(CaseContext(launcher, settings()), state) is not None, state.detail
    assert state.solo is not None
    assert state.solo.memory is not None
    return state.solo.memory


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_peaks_are_what_is_known_to_be_needed(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    launcher = Launcher(tmp_path)
    whole = measured(launcher, f"make_{library}")
    halves = measured(launcher, f"make_{library}_halves")
    assert whole.source == "VmHWM"
    assert whole.step_peak_bytes == pytest.approx(512 * MIB, rel=0.05)
    assert halves.step_peak_bytes == pytest.approx(256 * MIB, rel=0.05)
    assert whole.peak_bytes is not None
    assert whole.step_peak_bytes is not None
    assert halves.peak_bytes is not None
    assert halves.step_peak_bytes is not None
    assert whole.step_peak_bytes / halves.step_peak_bytes == pytest.approx(2.0, rel=0.10)
    assert whole.peak_bytes / halves.peak_bytes == pytest.approx(2.0, rel=0.10)
    assert whole.peak_bytes == pytest.approx(512 * MIB, rel=0.05)
