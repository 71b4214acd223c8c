"""Our own formulas as `pyproject.toml` names them: what the entry points are made from."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

from tests.targets.support import ROOT
from torchstone.measure.flops import ENTRY_POINTS, Formula, load_formulas


def own_points() -> tuple[EntryPoint, ...]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.split(f'[project.entry-points."{ENTRY_POINTS}"]')[1].split("\n[")[0]
    lines = re.findall(r'^"?([\w.]+)"? = "([\w.:]+)"$', table, flags=re.MULTILINE)
    return tuple(EntryPoint(name, value, ENTRY_POINTS) for name, value in lines)


def all_formulas() -> dict[str, Formula]:
    """Torch's and ours, loaded as the counting pass loads them."""
    return load_formulas(own_points())
