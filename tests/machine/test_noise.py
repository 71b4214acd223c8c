"""Noise counters of the real system; control groups also from files as systems write them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.machine.support import eventually
from torchstone.machine import processes
from torchstone.machine.noise import NoiseSnapshot, difference, snapshot

linux = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc here")


@linux
def test_a_process_that_must_share_its_core_shows_waiting_and_switches() -> None:
    core = {min(os.sched_getaffinity(0))}
    spin = "import time; end = time.perf_counter() + 60\nwhile time.perf_counter() < end: pass"
    rivals = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        for rival in rivals:
            os.sched_setaffinity(rival.pid, core)
        before = snapshot(rivals[0].pid)

        def noise() -> tuple[int, int]:
            found = difference(before, snapshot(rivals[0].pid), wall_ns=300_000_000, cpu_ns=0)
            assert found.wait_ns is not None
            assert found.involuntary_switches is not None
            return found.wait_ns, found.involuntary_switches

        # Each gets about half of the core, whatever else runs.
        assert eventually(lambda: noise()[0] > 50_000_000 and noise()[1] > 0, 30.0)
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


@linux
def test_a_sleeping_process_shows_none() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout
        assert process.stdout.readline()
        assert eventually(lambda: processes._state(f"/proc/{process.pid}") == "S")
        before = snapshot(process.pid)
        time.sleep(0.1)
        noise = difference(before, snapshot(process.pid), 100_000_000, 0)
    finally:
        process.kill()
        process.communicate()
    assert (noise.wait_ns, noise.involuntary_switches) == (0, 0)


@linux
def test_the_waiting_of_all_threads_counts() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    waits = snapshot().wait_ns
    stop.set()
    for thread in threads:
        thread.join()
    assert waits is not None
    assert len(waits) >= 4


def test_a_thread_that_ended_takes_nothing_away() -> None:
    before = NoiseSnapshot(wait_ns={1: 10, 2: 1_000_000})
    after = NoiseSnapshot(wait_ns={1: 15, 3: 7})
    assert difference(before, after, 1, 1).wait_ns == 12


def test_what_the_system_does_not_say_stays_unsaid() -> None:
    noise = difference(NoiseSnapshot(steal_ns=5), NoiseSnapshot(pressure_ns=7), 3, 2)
    assert (noise.wall_ns, noise.cpu_ns) == (3, 2)
    assert noise.wait_ns is noise.steal_ns is noise.pressure_ns is noise.throttled_ns is None


@linux
def test_a_snapshot_is_cheap() -> None:
    def cost() -> int:
        start = time.thread_time_ns()
        snapshot()
        return time.thread_time_ns() - start

    def kernel() -> int:
        start = time.thread_time_ns()
        sum(range(100_000))
        return time.thread_time_ns() - start

    # Against work of some milliseconds on the same core, not against the clock on the wall.
    assert min(cost() for _ in range(30)) < min(kernel() for _ in range(30))


def test_throttled_time_of_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v1, v2 = tmp_path / "v1", tmp_path / "v2"
    v1.mkdir()
    v2.mkdir()
    (v1 / "cpu.stat").write_text("nr_periods 9\nnr_throttled 2\nthrottled_time 5000\n")
    (v2 / "cpu.stat").write_text("usage_usec 1\nnr_throttled 1\nthrottled_usec 7\n")
    monkeypatch.setattr(processes, "folders", lambda _: (str(v1), str(v2)))
    processes._throttle_files.cache_clear()
    assert processes.throttled_ns() == 5000 + 7000
    (v2 / "cpu.stat").write_text("usage_usec 1\n")  # the root group says nothing
    processes._throttle_files.cache_clear()
    assert processes.throttled_ns() == 5000
    (v1 / "cpu.stat").unlink()
    processes._throttle_files.cache_clear()
    assert processes.throttled_ns() is None
    processes._throttle_files.cache_clear()


def test_memory_limits_kills_and_quotas_of_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, parent = tmp_path / "own", tmp_path / "parent"
    own.mkdir()
    parent.mkdir()
    monkeypatch.setattr(processes, "folders", lambda _: (str(own), str(parent)))
    (own / "memory.max").write_text("max\n")
    (own / "memory.current").write_text("500\n")
    (own / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (own / "cpu.max").write_text("max 100000\n")
    assert processes.memory_headroom() is None
    assert processes.cpu_quota() is None
    (parent / "memory.limit_in_bytes").write_text("1000\n")
    (parent / "memory.usage_in_bytes").write_text("700\n")
    (parent / "memory.stat").write_text("total_cache 300\ntotal_inactive_file 200\n")
    (parent / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (parent / "cpu.cfs_quota_us").write_text("150000\n")
    (parent / "cpu.cfs_period_us").write_text("100000\n")
    assert processes.memory_headroom() == 500
    assert processes.cgroup_oom_kills() == 3
    assert processes.cpu_quota() == 1.5
    (own / "memory.max").write_text("600\n")
    assert processes.memory_headroom() == 100


def test_folders_go_up_to_the_mount_and_inside_containers_start_at_its_root(
    tmp_path: Path,
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    names = [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path) + "/"]
    found = processes._with_ancestors((str(tmp_path), "/"), "/a/b")
    assert [os.path.normpath(f) for f in found] == [os.path.normpath(n) for n in names]
    found = processes._with_ancestors((str(tmp_path), "/docker/1"), "/docker/1/a")
    assert os.path.normpath(found[0]) == names[1]
    found = processes._with_ancestors((str(tmp_path), "/"), "/not/visible/here")
    assert [os.path.normpath(f) for f in found] == [str(tmp_path)]
