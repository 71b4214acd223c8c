"""The checkup of accelerators, with a script in place of `nvidia-smi`: there is no card here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machine.doctor_tree import findings, only, view
from torchstone.machine.doctor import View
from torchstone.machine.doctor.base import split_fix
from torchstone.machine.doctor.processors import ACCELERATOR
from torchstone.records import Level

QUIET = "0, NVIDIA A100, 0, 34, Enabled, 0x0000000000000001"


def planted(folder: Path, cards: str, apps: str = "", code: int = 0, device: str = "cuda") -> View:
    """A machine whose nvidia-smi says this."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"--query-gpu=*) printf '%s\\n' '{cards}' ;;\n"
        f"--query-compute-apps=*) printf '%s\\n' '{apps}' ;;\n"
        "*) exit 2 ;;\n"
        "esac\n"
        f"exit {code}\n"
    )
    program.chmod(0o755)
    return view(folder, env={"PATH": str(program.parent)}, device=device)


def test_a_quiet_card(tmp_path: Path) -> None:
    found = only(ACCELERATOR, planted(tmp_path, QUIET))
    assert found.level is Level.OK
    assert found.message == "NVIDIA A100 (0): 0 % busy, 34 degrees"
    assert found.figures == {"utilisation": 0.0, "temperature_c": 34.0}


def test_others_on_the_card_are_named(tmp_path: Path) -> None:
    apps = "4321, /usr/bin/python3"
    warned, card = findings(ACCELERATOR, planted(tmp_path, QUIET, apps))
    assert warned.level is Level.WARN
    assert "python3 (4321)" in warned.message
    assert card.level is Level.OK


@pytest.mark.parametrize(
    ("card", "level", "words"),
    [
        (QUIET.replace(", 0, 34", ", 93, 70"), Level.WARN, "93 % busy"),
        (QUIET.replace("0x0000000000000001", "0x0000000000000040"), Level.WARN, "clock held back"),
        (QUIET.replace("Enabled", "Disabled"), Level.NOTE, "unloads between processes"),
        (QUIET.replace(", 0, 34", ", [N/A], [N/A]"), Level.NOTE, "cannot be seen"),
    ],
)
def test_a_card_with_a_fault(card: str, level: Level, words: str, tmp_path: Path) -> None:
    found = only(ACCELERATOR, planted(tmp_path, card))
    assert found.level is level
    assert words in found.message
    for line in found.fixes:
        assert split_fix(line)[2] == "sudo nvidia-smi -i 0 -pm 0"


def test_for_the_cpu_a_busy_card_is_but_a_note(tmp_path: Path) -> None:
    busy = QUIET.replace(", 0, 34", ", 93, 70")
    assert only(ACCELERATOR, planted(tmp_path, busy, device="cpu")).level is Level.NOTE


def test_a_driver_that_does_not_answer_is_not_well(tmp_path: Path) -> None:
    found = only(ACCELERATOR, planted(tmp_path, "NVIDIA-SMI has failed", code=9))
    assert found.level is Level.NOTE
    assert found.message == "cannot be seen here: nvidia-smi failed (NVIDIA-SMI has failed)"


def test_no_cards_and_unknown_devices(tmp_path: Path) -> None:
    assert "lists none" in only(ACCELERATOR, planted(tmp_path / "none", "")).message
    found = only(ACCELERATOR, planted(tmp_path / "xpu", QUIET, device="xpu"))
    assert found.message == "cannot be seen here: nothing here knows about xpu"
