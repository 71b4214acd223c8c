"""Arms of one replicate lie alike in memory; replicates do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.measure import bootstrap

MAIN = """\
import ctypes, os

def main():
    library = ctypes.CDLL(None)
    address = ctypes.cast(library.malloc, ctypes.c_void_p).value
    buffer = ctypes.create_string_buffer(1 << 20)
    print(address, ctypes.addressof(buffer), os.environ.get("TORCHSTONE_LAYOUT"))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The bootstrap with a worker that tells where things are."""
    package = tmp_path / "torchstone" / "measure"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package.parent / "__init__.py").write_text("")
    (package / "worker.py").write_text(MAIN)
    return Path(shutil.copy(bootstrap.__file__, tmp_path / "worker.py"))


def places(script: Path, layout: str) -> str:
    env = {**os.environ, bootstrap.VARIABLE: layout, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_layout_is_the_same_and_another_is_another(script: Path) -> None:
    first = places(script, "700")
    if bootstrap.SETTLED not in first:
        pytest.skip("this system does not let a process switch address randomisation off")
    assert first == places(script, "700")
    assert first.split()[1] != places(script, "9000").split()[1]


def test_without_a_layout_addresses_stay_random(script: Path) -> None:
    found = {places(script, "") for _ in range(4)}
    assert len(found) > 1
