"""Where things stand in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "torchstone"


def packages() -> list[Path]:
    """Every room that holds source; a folder with only caches in it is no room."""
    return sorted(path for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py")))


def sources() -> list[Path]:
    """Every source file of the package."""
    return sorted(PACKAGE.rglob("*.py"))
