"""Probes as an installer leaves them, in this process and in those that a test starts."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from tests.house.places import ROOT
from torchstone.profile.probes import base
from torchstone.records import Frame, Profile

_SECTION = re.compile(r'\[project\.entry-points\."?([\w.]+)"?\]\n((?:"?[\w.-]+"? = .*\n)+)')
_LINE = re.compile(r'"?([\w.-]+)"? = "([^"]+)"')


def declared() -> dict[str, dict[str, str]]:
    """The entry points that the project file declares, by group."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return {group: dict(_LINE.findall(lines)) for group, lines in _SECTION.findall(text)}


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, in this process."""
    points = {
        name: metadata.EntryPoint(name, value, base.ENTRY_POINTS)
        for name, value in declared()[base.ENTRY_POINTS].items()
    }
    monkeypatch.setattr(base, "known_probes", lambda: points)


def python_path(folder: Path) -> str:
    """PYTHONPATH of a process that finds what is declared, whatever is installed."""
    info = folder / "torchstone-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchstone\nVersion: 0\n")
    lines = []
    for group, points in declared().items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return f"{folder}:{ROOT / 'src'}:{ROOT}"


def frame_named(profile: Profile, name: str) -> int:
    found = [i for i, frame in enumerate(profile.frames) if frame.name == name]
    assert len(found) == 1, (name, [frame.name for frame in profile.frames])
    return found[0]


def on_critical_thread(profile: Profile) -> tuple[tuple[int, int, float], ...]:
    """Nodes as (frame, parent, own): whoever runs the tests may have threads of its own."""
    tree = profile.tree
    assert tree is not None
    return tuple(
        (frame, parent, own)
        for frame, parent, own, thread in zip(
            tree.frames, tree.parents, tree.own, tree.threads, strict=True
        )
        if profile.threads[thread].critical
    )


def own_share(profile: Profile, name: str) -> float:
    """Of the critical thread's whole, by itself."""
    wanted = frame_named(profile, name)
    nodes = on_critical_thread(profile)
    return sum(own for frame, _, own in nodes if frame == wanted) / sum(own for *_, own in nodes)


def roots(profile: Profile) -> set[str]:
    """Of the critical thread."""
    nodes = on_critical_thread(profile)
    return {profile.frames[frame].name for frame, parent, _ in nodes if parent < 0}


def names(frames: tuple[Frame, ...]) -> set[str]:
    return {frame.name for frame in frames}
