"""A file that is edited while it is measured: no two versions of it are pooled, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import HONEST, settings
from torchstone.conductor import CaseSpec, run_case
from torchstone.conductor.case import Silent
from torchstone.records import ArmSpec, Measurement, Outcome

TARGET = """
from helper import times

def make():
    return (lambda x: x * times), (lambda seed: (seed,))
"""


class EditsAt(Silent):
    """Writes a file when the second measuring process begins."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.text = file, text

    def phase(self, text: str) -> None:
        if text.startswith("measuring: process 2"):
            self.file.write_text(self.text)


def measured(folder: Path, name: str, text: str) -> tuple[Measurement, ...]:
    (folder / "model.py").write_text(TARGET)
    (folder / "helper.py").write_text("times = 2\n")
    arms = (ArmSpec("edited", f"{folder / 'model.py'}:make"), ArmSpec("other", HONEST))
    case = CaseSpec(arms, settings(replicates=3, independent=True))
    return run_case(case, EditsAt(folder / name, text)).arms


@pytest.mark.parametrize(
    ("name", "text"),
    [("model.py", TARGET + "\n# faster\n"), ("helper.py", "times = 1 + 1\n")],
)
def test_two_versions_of_a_file_are_not_pooled(tmp_path: Path, name: str, text: str) -> None:
    edited, other = measured(tmp_path, name, text)
    assert edited.outcome is Outcome.ERROR
    assert edited.detail.message == f"the file changed while it was measured: {name}"
    assert edited.detail.remedy
    assert {turn.replicate for turn in edited.turns} == {0}
    assert other.outcome is Outcome.OK
    assert {turn.replicate for turn in other.turns} == {0, 1, 2}


def test_a_factory_that_is_gone_costs_only_its_own_arm(tmp_path: Path) -> None:
    edited, other = measured(tmp_path, "model.py", TARGET.replace("make", "build"))
    assert edited.outcome is Outcome.ERROR
    assert edited.detail.message.startswith("the file changed while it was measured: model.py (")
    assert "has no 'make'" in edited.detail.message
    assert {turn.replicate for turn in edited.turns} == {0}
    assert other.outcome is Outcome.OK
    assert {turn.replicate for turn in other.turns} == {0, 1, 2}
