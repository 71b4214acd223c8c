"""Where a thread blocks: by a profile function, and looked at from outside."""

from __future__ import annotations

import _thread
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchstone.explain.passes.blocked import (
    CollectionClock,
    WaitClock,
    blocked_pass,
    kind_of,
    other_python_threads,
)
from torchstone.explain.passes.plain import Sleeps, classify, parse, watched_pass
from torchstone.explain.passes.report import Block, functions_pass

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def quiet(phase: str) -> None:
    assert phase


def blocks(step: Callable[[], object], count: int = 5) -> dict[str, Block]:
    """By function; of one that blocks in several places, the place where it blocks longest."""
    found = blocked_pass(step, 1, count, quiet)
    return {one.function: one for one in reversed(found)}


def test_a_sleep_is_found_with_its_line() -> None:
    found = blocks(lambda: time.sleep(0.005))
    slept = found["time.sleep"]
    assert slept.kind == "sleep"
    assert slept.off == pytest.approx(5e6, rel=0.5)
    assert slept.calls == 1
    assert slept.place.startswith(__file__)
    assert sys.getprofile() is None


def test_work_is_no_wait() -> None:
    assert "sleep" not in {one.kind for one in blocks(lambda: sum(range(50_000))).values()}


def test_a_file_counts_though_it_never_blocks(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(bytes(4 << 20))

    def read() -> int:
        with open(path, "rb", buffering=0) as file:
            return len(file.read())

    found = blocks(read)
    kinds = {
        one.kind: one.on for one in found.values() if one.function.endswith(("read", "readall"))
    }
    assert kinds["files"] > 0


def test_waiting_for_a_lock() -> None:
    lock = threading.Lock()
    asked, taken = threading.Semaphore(0), threading.Semaphore(0)

    def hold() -> None:
        for _ in range(3):
            asked.acquire()
            with lock:
                taken.release()
                time.sleep(0.05)

    thread = threading.Thread(target=hold)
    thread.start()

    def wait() -> None:
        asked.release()
        taken.acquire()
        lock.acquire()
        lock.release()

    found = blocks(wait, 3)
    thread.join()
    assert max(one.off for one in found.values() if one.kind == "locks") > 5e6


def test_all_that_a_data_loader_does_is_loading() -> None:
    torch = pytest.importorskip("torch")

    class Slow(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.004)
            return index

    batches: Iterator[Any] = iter(torch.utils.data.DataLoader(Slow()))
    found = blocks(lambda: next(batches))
    assert found["time.sleep"].kind == "loading"


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (time.sleep, "sleep"),
        (_thread.allocate_lock().acquire, "locks"),
        (os.read, "files"),
        (len, "other"),
    ],
)
def test_what_a_function_waits_for(function: Any, kind: str) -> None:
    assert kind_of(function) == kind


def test_sockets_are_network() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert kind_of(left.recv) == "network"


def test_another_profiler_is_left_alone() -> None:
    def other(frame: Any, event: str, argument: Any) -> None:
        """Somebody else's."""

    sys.setprofile(other)
    try:
        assert blocked_pass(lambda: None, 1, 1, quiet) == ()
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_functions_are_named_the_slowest_first() -> None:
    def dear() -> int:
        return sum(number & 3 for number in range(20_000))

    found = functions_pass(dear, 2, 3, quiet)
    assert {found[0].name, found[1].name} == {"dear", "<genexpr>"}
    assert found[0].file == __file__


NUMBERS = {"futex": 202, "sleep": (35, 230), "read": (0, 45)}


def test_looks_are_counted_by_what_the_thread_slept_in() -> None:
    seen = {
        "running": 5,
        "202 0x1000 0x500": 7,
        "202 0x1040 0x500": 1,
        "202 0x9000 0x2010": 3,
        "202 0x9000 0x500": 2,
        "230 0x0 0x500": 4,
        "45 0x3 0x500": 6,
        "61 0x3 0x500": 1,
    }
    found = classify(29, seen, Sleeps(NUMBERS, {0x1000}, [(0x2000, 0x3000)]))
    names = ("gil", "pool", "locks", "sleep", "network", "other")
    assert found.asleep == dict(zip(names, (8, 3, 2, 4, 6, 1), strict=True))


@LINUX
def test_a_sleeping_thread_is_seen_from_outside() -> None:
    found = watched_pass(lambda: time.sleep(0.01), 0.4, quiet)
    if found.reason:
        pytest.skip(found.reason)
    assert found.asleep["sleep"] > 0.5 * found.looks
    assert found.asleep.get("gil", 0) <= 0.2 * found.looks


@LINUX
@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="no lock")
def test_the_interpreters_lock_is_told_from_other_locks() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    def work() -> int:
        return sum(number & 3 for number in range(50_000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        found = watched_pass(work, 0.6, quiet)
    finally:
        stop.set()
        thread.join()
    if found.reason:
        pytest.skip(found.reason)
    assert found.asleep["gil"] > 0.1 * found.looks
    assert found.others >= 1
    assert found.others_gil > 0.1 * found.others_looks / found.others
    assert found.asleep.get("locks", 0) <= 0.1 * found.looks


def test_lines_of_the_libraries() -> None:
    text = "\n".join(
        (
            "onednn_verbose,v1,info,oneDNN v3.7",
            "onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx2,forward,src,,,x,0.5",
            "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src,,,x,0.25",
            "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src,,,x,broken",
            "MKL_VERBOSE oneMKL 2024",
            "MKL_VERBOSE SGEMM(N,N,256,256,256,0x7ff,0x7f) 12.50us CNR:OFF Dyn:1 TID:0 NThr:1",
            "what user code prints",
        )
    )
    found = {(one.library, one.kind): one for one in parse(text, 2)}
    assert found["oneDNN", "convolution"].ns == 0.25e6
    assert found["oneDNN", "reorder"].calls == 0.5
    assert found["MKL", "gemm"].ns == 6250
    assert len(found) == 3


def test_collections_are_timed_on_their_own_thread() -> None:
    import gc

    with CollectionClock().watching() as clock:
        gc.collect()
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
    assert clock.runs == 1
    assert clock.total > 0
    assert clock._callback not in gc.callbacks


@LINUX
def test_the_clock_of_waiting_never_runs_backwards() -> None:
    clock = WaitClock()
    first = clock()
    time.sleep(0.001)
    assert clock() >= first
    clock.close()
    assert clock() == 0
    assert threading.get_native_id() not in other_python_threads()
