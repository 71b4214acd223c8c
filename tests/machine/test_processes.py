"""Quiet, busy, killed and orphaned processes: all of them real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.machine.support import clean_env, eventually
from torchstone.machine import processes
from torchstone.machine.processes import (
    by_thread,
    die_with_parent,
    kill_tree,
    memory_available,
    oom_kills,
    tagged_processes,
    wait_until_quiet,
)

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc here")

TAG = "TORCHSTONE_TEST_TAG"

SPIN_ON_ORDER = """
import sys, threading, time
print("ready", flush=True)
for line in sys.stdin:
    def spin(seconds):  # of CPU time: a busy machine gives less of it
        while time.thread_time() < seconds: pass
    threading.Thread(target=spin, args=(float(line),)).start()
    print("started", flush=True)
"""


@pytest.fixture
def spinner() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SPIN_ON_ORDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def _order(process: subprocess.Popen[str], seconds: float) -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "started\n"


def test_a_blocked_process_is_quiet_soon(spinner: subprocess.Popen[str]) -> None:
    wait_until_quiet(spinner.pid, 10.0)
    before = sum(by_thread(spinner.pid, 0).values())
    after, late = wait_until_quiet(spinner.pid, 10.0)
    assert after is not None
    assert late == 0
    assert sum(by_thread(spinner.pid, 0).values()) == before


def test_a_spinning_thread_is_waited_for_and_its_cpu_time_is_counted(
    spinner: subprocess.Popen[str],
) -> None:
    wait_until_quiet(spinner.pid, 10.0)
    before = sum(by_thread(spinner.pid, 0).values())
    start = time.perf_counter_ns()
    _order(spinner, 0.5)
    after, late = wait_until_quiet(spinner.pid, 120.0)
    assert after is not None
    assert time.perf_counter_ns() - start >= 500_000_000
    # CPU time shows only at ticks, so a look without the thread's state would end at once.
    assert late > 20_000_000
    assert before is not None


def test_many_looks_at_a_spinning_thread_never_call_it_quiet(
    spinner: subprocess.Popen[str],
) -> None:
    _order(spinner, 60.0)  # killed before
    looks = [wait_until_quiet(spinner.pid, 0.01)[0] for _ in range(20)]
    assert looks == [None] * 20


def test_a_process_that_does_not_exist() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert by_thread(process.pid, 0) == {}
    assert wait_until_quiet(process.pid, 1.0) == (None, 0)


# Everybody ends after half a minute, so that a failed test leaves no strays for long.
FAMILY = """
import os, subprocess, sys, time
sleep = "import time; time.sleep(120)"
subprocess.Popen([sys.executable, "-c", sleep])
# A grandchild in its own session whose parent is gone: neither group nor parent leads to it.
orphan = "import subprocess as s, sys; s.Popen([sys.executable, '-c', %r], start_new_session=True)"
subprocess.run([sys.executable, "-c", orphan % sleep], start_new_session=True)
# A child that threw its environment away: no tag leads to it.
subprocess.Popen([sys.executable, "-c", sleep], env={}, start_new_session=True)
print("ready", flush=True)
time.sleep(120)
"""


def _start_family(tag: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        env=clean_env(**{TAG: tag}),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_kill_tree_leaves_nobody() -> None:
    tag = uuid.uuid4().hex
    leader = _start_family(tag)
    members = processes._members(leader.pid, f"{TAG}={tag}")
    assert len(members) == 4
    assert leader.pid in members
    assert len(tagged_processes(TAG, tag)) == 3  # one of them has no environment
    assert kill_tree(leader.pid, TAG, tag) == 3
    assert leader.wait(120) == -signal.SIGKILL
    assert tagged_processes(TAG, tag) == []
    assert not [pid for pid in members if processes._state(f"/proc/{pid}") not in "ZX"]
    assert leader.stdout
    leader.stdout.close()


def test_kill_tree_finds_the_orphan_after_the_leader_is_gone() -> None:
    tag = uuid.uuid4().hex
    leader = _start_family(tag)
    members = processes._members(leader.pid, f"{TAG}={tag}")
    leader.kill()
    leader.wait()
    tagged = set(tagged_processes(TAG, tag))
    assert len(tagged) == 2
    try:
        assert kill_tree(leader.pid, TAG, tag) == 2
        assert tagged_processes(TAG, tag) == []
    finally:
        for pid in members - tagged - {leader.pid}:  # the one without tag, group or parent
            os.kill(pid, signal.SIGKILL)
        assert leader.stdout
        leader.stdout.close()


def test_kill_tree_spares_others_and_refuses_its_own_group() -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(120)"],
        env=clean_env(**{TAG: "another"}),
        start_new_session=True,
    )
    dead = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    dead.wait()
    try:
        assert kill_tree(dead.pid, TAG, "anothe") == 0
        assert kill_tree(dead.pid, TAG, "another!") == 0
        assert other.poll() is None
        with pytest.raises(ValueError, match="refusing"):
            kill_tree(os.getpgrp(), TAG, "x")
    finally:
        other.kill()
        other.wait()


CHILD_OF_MORTAL = """
import subprocess, sys, time
code = (
    "from torchstone.machine.processes import die_with_parent; import os, time;"
    "assert die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(120)"
)
process = subprocess.Popen([sys.executable, "-c", code])
time.sleep(120)
"""


def test_a_worker_dies_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", CHILD_OF_MORTAL],
        env=clean_env(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert processes._state(f"/proc/{child}") not in "ZX"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert eventually(lambda: processes._state(f"/proc/{child}") in "ZX")


def test_die_with_parent_ends_at_once_if_the_parent_is_dead_already() -> None:
    code = (
        "from torchstone.machine.processes import die_with_parent as die; die(1 << 30); print('a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_env(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert callable(die_with_parent)


def test_memory_and_oom_counters() -> None:
    available = memory_available()
    assert 0 < available <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert oom_kills() >= 0
