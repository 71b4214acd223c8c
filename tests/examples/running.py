"""Run the command line as a person does: in a process of its own, and end what it left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 300
_MAIN = "from torchstone.cli import main; main()"


def environment(**extra: str) -> dict[str, str]:
    """Ours, with the sources of this checkout first on the path."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **extra}


def torchstone(
    *words: str, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`torchstone WORDS`."""
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *words],
        cwd=cwd,
        env=env or environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def bench(*words: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON of a short `torchstone bench`: enough to see that it works, not to measure."""
    few = ("--replicates", "1", "--budget", "0.5s", "--no-save", "--json", "-")
    done = torchstone("bench", *few, *words, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document
