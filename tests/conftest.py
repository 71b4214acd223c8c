"""What every test stands on: a data folder of its own, and property tests without a clock."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.browsing import ARGUMENTS, CHROMIUM
from tests.legal import keep_to_legal_instructions

# A deadline asserts on absolute time, and a shared machine breaks that at will.
# `make test` tries the same examples every time: what it finds must come from the change it looks
# at. pytest by hand searches at random.
settings.register_profile(
    "torchstone",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize="SAME_EXAMPLES" in os.environ,
)
settings.load_profile("torchstone")

keep_to_legal_instructions()  # once: the processes of pytest-xdist inherit what it sets

if threading.current_thread() is threading.main_thread():
    # What a shell starts in the background ignores Ctrl-C, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """See `tests/golden`."""
    parser.addoption("--renew-golden", action="store_true", help="write the golden files again")


def pytest_collection_finish() -> None:
    """What collecting has loaded (torch, every module of tests) stays to the end: collections that
    look through all of it each time take minutes in sum."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests measure out of the user's own store, in this process and in those it starts.

    `TORCHSTONE_*` settings of whoever runs the tests are put aside for the same reason.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        for name in [name for name in os.environ if name.startswith("TORCHSTONE_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """Playwright. Its event loop runs in this thread, so it ends with its module: tests of asyncio
    may come next in this process."""
    api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        pytest.skip("needs Chromium")
    with api.sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(driver: Any) -> Iterator[Any]:
    """One for all tests of a module."""
    started = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
    yield started
    started.close()
