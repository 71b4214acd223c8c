"""A memory group with a limit, for targets that are to be killed for lack of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.targets import support
from tests.targets.support import eventually


def _memory_group() -> Path | None:
    """A new memory group with a limit of 300 MB, version 1 or 2, where we may make one."""
    name = f"torchstone-test-{os.getpid()}"
    for parent, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = parent / name
        try:
            folder.mkdir()
            (folder / limit).write_text(str(300 << 20))
        except OSError:
            if folder.is_dir():
                folder.rmdir()
            continue
        return folder
    return None


@pytest.fixture
def memory_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = _memory_group()
    if folder is None:
        pytest.skip("no writable memory controller: needs root and cgroup v1 or v2")
    monkeypatch.setenv("TEST_CGROUP", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(support.ROOT))
    yield folder
    assert eventually(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()
