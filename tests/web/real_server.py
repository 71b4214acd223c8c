"""`torchstone serve` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.targets.support import ROOT
from tests.web.conftest import PATIENCE_S

MAIN = "from torchstone.cli import main; main()"


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Its address; it must end well when it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", MAIN, "serve", "--db", str(path), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        yield address.rstrip("/")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
