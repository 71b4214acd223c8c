from __future__ import annotations

import re
from importlib import metadata

import pytest

from tests.house.places import ROOT
from torchstone.profile import registry

SECTION = re.compile(r'\[project\.entry-points\."torchstone\.profile_formats"\]\n((?:\w.*\n)+)')
LINE = re.compile(r'([\w-]+) = "([^"]+)"')


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, metadata.EntryPoint]:
    """Formats as an installer leaves them, from the lines that it would read."""
    section = SECTION.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert section is not None
    points = {
        name: metadata.EntryPoint(name, value, registry.ENTRY_POINTS)
        for name, value in LINE.findall(section[1])
    }
    monkeypatch.setattr(registry, "known_formats", lambda: points)
    return points
