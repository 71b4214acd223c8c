"""`kill -9` of a real `torchstone run` while its page is open in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import HERE as TARGETS
from tests.targets.support import MARK, ROOT, eventually, marked
from tests.web.conftest import PATIENCE_S
from tests.web.real_server import MAIN, served
from torchstone.records import UsageError
from torchstone.store import open_store
from torchstone.store.heartbeat import running_ids

pytestmark = pytest.mark.slow

MODELS = {"first": "honest", "second": "waits"}
GO = "go"
WAITS = f"""
import time
from pathlib import Path
from honest import draw, squares

def make():
    while not Path(__file__).with_name({GO!r}).exists():
        time.sleep(0.02)
    return squares, draw
"""
"""A model that is built when it is told to: until then the run stands there."""
FAST = ("--variants", "eager", "--budget-per-case", "0.3s", "--replicates", "2")
LATER_MS = 7000
"""More than the longest pause between two looks of a page."""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def mark() -> str:
    """By which all processes of the run are known."""
    return uuid.uuid4().hex


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A suite of targets that need no torch."""
    (tmp_path / "honest.py").write_text((TARGETS / "honest.py").read_text())
    (tmp_path / "waits.py").write_text(WAITS)
    models = "\n".join(
        f'[[model]]\nname = "{name}"\ntarget = "{tmp_path}/{file}.py:make"\n'
        for name, file in MODELS.items()
    )
    (tmp_path / "toys.toml").write_text(f'name = "toys"\n{models}')
    return tmp_path


@pytest.fixture
def start(here: Path, mark: str) -> Iterator[Start]:
    """Start `torchstone run`; nothing of it outlives the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def started(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", *words, "--db", "kept.db"],
            cwd=here,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", MARK: mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()
    assert eventually(lambda: not marked(mark), PATIENCE_S)


def begun(db: Path, run_id: str) -> bool:
    """Whether a case is stored. Not asked too often: the run needs the processor."""
    time.sleep(0.3)
    try:
        return bool(results(db, run_id))
    except UsageError:  # the plan is not stored yet
        return False


def results(db: Path, run_id: str) -> list[str]:
    with open_store(str(db), create=False, read_only=True) as store:
        return [case.result_id for case in store.run_view(run_id).cases]


class Watched:
    """A page that is never loaded again; its own clock may be put forward."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        page.clock.install()
        page.goto(address)
        page.evaluate("window.same = true")

    def shows(self, place: str, text: str) -> bool:
        """Whether it comes to show the text there, looking again as it does by itself."""

        def look() -> bool:
            self.page.clock.fast_forward(LATER_MS)
            self.page.wait_for_timeout(100)
            return any(text in one for one in self.page.locator(place).all_inner_texts())

        return eventually(look, PATIENCE_S)

    @property
    def is_the_same(self) -> bool:
        return self.page.evaluate("window.same === true")


def test_the_page_says_interrupted_and_goes_on_in_place_when_the_run_is_resumed(
    here: Path, start: Start, mark: str, new_page: Any
) -> None:
    db = here / "kept.db"
    process = start("toys.toml", *FAST)
    assert eventually(lambda: bool(running_ids(db)), PATIENCE_S)
    (run_id,) = running_ids(db)
    assert eventually(lambda: begun(db, run_id), PATIENCE_S)
    with served(db) as address:
        run = Watched(new_page(address), f"{address}/runs/{run_id}")
        listed = Watched(new_page(address), f"{address}/runs")
        assert run.shows(".progress.running", "1 of 2 cases done")
        process.kill()  # this program alone, as a person would: its workers must see to themselves
        process.wait()
        assert eventually(lambda: not marked(mark), PATIENCE_S)
        before = results(db, run_id)
        assert len(before) == 1
        assert run.shows(".progress.interrupted", "interrupted with 1 to go")
        assert listed.shows("#table-runs tbody tr", "interrupted")
        assert run.page.locator(".progress.running").count() == 0

        again = start("--resume", run_id)
        assert run.shows(".progress.running", "1 of 2 cases done")
        assert listed.shows("#table-runs tbody tr", "running")
        (here / GO).touch()
        assert again.wait(PATIENCE_S) == 0
        assert run.shows(".progress.complete", "2 of 2 cases done")
        assert run.shows("#table-groups tbody tr", "2/2")
        assert listed.shows("#table-runs tbody tr", "complete")
        assert run.is_the_same
        assert listed.is_the_same
    after = results(db, run_id)
    assert after[: len(before)] == before
    assert len(set(after)) == len(MODELS)
