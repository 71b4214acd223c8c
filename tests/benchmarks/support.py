"""Running the scripts as a person would, and rows as they would have written them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.structure.places import ROOT, SRC

TRUE = {0: 1.0, 2: 1.02, 5: 1.05}


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks" / script), *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC)}


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(script, *words), env=environment(), capture_output=True, text=True, timeout=300
    )


def trial(
    tool: str,
    effect: int,
    number: int,
    verdict: str,
    ratio: float = 1.0,
    interval: tuple[float, float] | None = None,
    load: bool = False,
    wall_s: float = 40.0,
) -> dict[str, Any]:
    """A finished trial."""
    return {
        "kind": "trial",
        "tool": tool,
        "effect": effect,
        "load": load,
        "trial": number,
        "step": "5ms",
        "threads": 1,
        "true_ratio": TRUE[effect],
        "verdict": verdict,
        "ratio": ratio,
        "interval": None if interval is None else list(interval),
        "wall_s": wall_s,
    }


def children(pid: int) -> set[int]:
    """Processes whose parent is `pid`."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found |= {int(word) for word in task.read_text().split()}
    return found


def alive(pid: int) -> bool:
    """Running, or at least not yet a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
