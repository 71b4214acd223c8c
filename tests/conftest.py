"""What every test stands on: a data folder of its own, and property tests without a clock."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from tests.browsing import ARGUMENTS, CHROMIUM
from tests.legal import keep_to_legal_instructions
from tests.postgres import MISSING, Server, is_there, server

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


MEASURE_FOR_REAL = frozenset(
    ("benchmarks", "browser", "cli", "conductor", "docs", "examples", "explain", "lab", "machine")
) | {"measure", "monitor", "profile", "web", "workloads"}
"""Folders whose tests start processes and look at real time, on a machine that others use too. One
that fails is tried twice more, with all fixtures made again: a fault in the code fails three times,
a busy second does not. The summary names those that were `retried`, and why."""
TRIES = 3


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """The usual protocol, several times where a test measures for real and fails."""
    if item.path.parent.name not in MEASURE_FOR_REAL:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(1, TRIES + 1):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        why = [_why(report) for report in reports if report.failed]
        if number == TRIES or not why:
            break
        item.session._setupstate.teardown_exact(None)
        item.user_properties.append(("retried", why[0]))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _why(report: pytest.TestReport) -> str:
    """The first line of what failed, without the text that pytest explains it by."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    return next(iter(text.strip().splitlines()), "")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A test that passed at another try is counted as such."""
    tried = any(name == "retried" for name, _ in getattr(report, "user_properties", ()))
    return (
        ("retried", "R", "RETRIED") if tried and report.when == "call" and report.passed else None
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which they were."""
    for report in terminalreporter.getreports("retried"):
        why = "; ".join(str(value) for name, value in report.user_properties if name == "retried")
        terminalreporter.write_line(f"RETRIED {report.nodeid} - {why}")


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


@pytest.fixture(autouse=True)
def gradients_stay_on() -> Iterator[None]:
    """Preparing an inference arm turns torch's gradient mode off for its process, which here
    is the next test's too."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_grad_enabled(True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server of our own, for all tests of a process."""
    pytest.importorskip("psycopg")
    if not is_there():
        pytest.skip(MISSING)
    with server() as started:
        yield started


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
