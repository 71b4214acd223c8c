"""What tests of profiles share."""

from __future__ import annotations

from tests.structure.places import ROOT
from torchstone.records import Frame, Profile


def python_path() -> str:
    """PYTHONPATH of a process that finds our packages and the tests'."""
    return f"{ROOT / 'src'}:{ROOT}"


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
