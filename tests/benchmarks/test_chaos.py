"""Commands that are killed, stopped or starved: the benchmark at its smallest, and what it sees."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chaos import Place, Trial, look

from tests.benchmarks.support import command, environment


@pytest.mark.slow
def test_nothing_is_lost_left_or_doubled() -> None:
    words = command("chaos.py", "--trials", "12", "--seed", "7")
    done = subprocess.run(
        words, env=environment(), capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 with a fault" in done.stdout


def test_what_is_left_behind_would_be_seen(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.temporary / "torchstone-left").mkdir()  # nobody's, so nobody sweeps it
    done = Trial("bench", "nothing")
    look(place, done, (["lost"], []), itself=False, name="TERM")
    assert [fault.split(" left")[0] for fault in done.faults[:2]] == ["1 folder(s)"] * 2
    assert done.faults[2] == "something that was stored is gone"
