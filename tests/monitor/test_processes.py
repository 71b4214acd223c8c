"""Monitors in processes of their own: killed, without a disk, with sinks that block, on demand."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import torchstone
from tests.examples.running import environment
from torchstone.monitor.journal import (
    Journal,
    MonitorRecord,
    RankRecord,
    SlowRank,
    all_records,
    decode,
    find_record,
    open_record,
)
from torchstone.monitor.session import Monitor
from torchstone.monitor.views import find_view, view_of, views
from torchstone.records import UsageError
from torchstone.records.monitoring import Line, MonitorEvent, MonitorHeader, MonitorLevel

torch = pytest.importorskip("torch")

PATIENCE_S = 60.0
LOOP = """
import sys, time, torch, torchstone
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with torchstone.monitor("loop", model=model, optimizer=optimizer, folder=sys.argv[1]) as m:
    for number in m.steps(range(10**9)):
        time.sleep(0.002)
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
"""
SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = DataLoader(torch.ones(120, 8), batch_size=4) if sys.argv[1] == "loader" else range(30)
for batch in batches:
    batch = batch if torch.is_tensor(batch) else torch.ones(4, 8)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
print("trained", sys.argv[1:])
sys.exit(int(sys.argv[2]))
"""


def until(done: Callable[[], Any]) -> Any:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    folder = Path(os.environ["XDG_DATA_HOME"]) / "torchstone" / "monitors" / f"loop-{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", LOOP, str(folder)], env=environment()) as process:
        try:
            until(lambda: open_record(folder).ranks and open_record(folder).ranks[0].chunks)
            yield process, folder
        finally:
            process.kill()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink()
    folder.rmdir()


def test_kill_9_leaves_a_whole_record(loop: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, folder = loop
    assert view_of(open_record(folder)).state == "running"
    assert [one.id for one in all_records() if one.running] == [folder.name]
    process.kill()
    process.wait()
    record = open_record(folder)
    view = view_of(record)
    assert view.state == "lost"
    assert view.damaged == 0
    chunks = record.ranks[0].chunks
    assert [one.first_step for one in chunks[1:]] == [one.last_step + 1 for one in chunks[:-1]]


def test_a_profile_is_taken_on_demand_and_by_signal(
    loop: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    process, folder = loop
    command = ["top", "--profile", "3", "--how", "count", "--db", str(tmp_path / "p.db")]
    done = torchstone_command(*command)
    assert done.returncode == 0, done.stderr
    ident = done.stdout.split()[-1]
    shown = torchstone_command("show", ident, "--db", str(tmp_path / "p.db"))
    assert shown.returncode == 0, shown.stderr
    assert "optimizer" in shown.stdout
    process.send_signal(signal.SIGUSR2)
    until(lambda: len(list(folder.glob("profile-*.profile.json"))) == 2)
    assert process.poll() is None
    events = [one.text for one in open_record(folder).ranks[0].events if one.what == "profile"]
    assert any("(count)" in text for text in events)


def torchstone_command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchstone", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **{"env": environment(), **options},
    )


def train(folder: Path, **options: Any) -> Any:
    """A few steps; the monitor."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    with torchstone.monitor("few", folder=folder, **options) as m:
        for _ in m.steps(range(20)):
            weight.square().sum().backward()
            optimizer.step()
    return m


def test_a_full_disk_loses_lines_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank-0.jsonl").symlink_to("/dev/full")
    m = train(tmp_path)
    assert m._runners[0].dropped > 0
    assert "No space left" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    train(tmp_path / "file")
    assert "the monitor's record lost" in capsys.readouterr().err


@pytest.mark.parametrize("written", [0, 30, 250])
def test_a_disk_that_was_full_for_a_while_costs_only_what_came_then(
    written: int, tmp_path: Path
) -> None:
    header = MonitorHeader("x-1", "x", "training", 0, 1, os.getpid(), 1.0)
    lines = [MonitorEvent(1.0, n, "user", MonitorLevel.NOTE, "note " * 20) for n in range(3)]
    journal = Journal(tmp_path, header)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if written == 250:  # the header is there already
        journal.write([])
        written += (tmp_path / "rank-0.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            journal.write(lines[:2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    journal.write(lines[2:])
    journal.close()
    (rank,) = open_record(tmp_path).ranks
    assert rank.header == header
    assert lines[2] in rank.events
    assert rank.damaged <= 1


class Blocking:
    """A sink that never comes back."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def write(self, lines: Iterable[Line]) -> None:
        self.let_go.wait()

    def close(self) -> None:
        """Never reached."""


class Failing:
    """A sink that is down."""

    def write(self, lines: Iterable[Line]) -> None:
        raise ConnectionError("down")

    def close(self) -> None:
        """Nothing."""


def test_a_sink_that_blocks_and_one_that_is_down_harm_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchstone.monitor import sinks

    monkeypatch.setattr(sinks, "CLOSING_S", 0.05)
    monkeypatch.setattr(sinks, "MOST_WAITING", 3)
    blocking = Blocking()
    train(tmp_path, sinks=[blocking, Failing()])
    blocking.let_go.set()
    assert view_of(open_record(tmp_path)).ranks[0].whole.steps == 20
    told = capsys.readouterr().err
    assert "Failing lost" in told
    assert "ConnectionError: down" in told


def test_a_line_cut_short_is_read_when_it_is_whole(tmp_path: Path) -> None:
    train(tmp_path)
    whole = (tmp_path / "rank-0.jsonl").read_bytes()
    other = tmp_path / "other" / "rank-0.jsonl"
    other.parent.mkdir()
    cut = whole.index(b"\n", 10) + 40
    other.write_bytes(whole[:cut])
    rank = RankRecord(other)
    rank.read()
    assert rank.header is not None
    assert not rank.chunks
    assert rank.damaged == 0
    other.write_bytes(whole)
    rank.read()
    assert len(rank.chunks) == len(open_record(tmp_path).ranks[0].chunks)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"line": "chunk"}',
        '{"line": "header", "id": 3}',
        '{"line": "end", "time_s": 1.0, "steps": "many", "reason": ""}',
        '{"line": "nothing"}',
        "[" * 100_000,
        '"' + "x" * (2 << 20) + '"',
    ],
)
def test_lines_that_are_none_of_ours_are_left(text: str) -> None:
    assert decode(text) is None


def test_a_running_monitor_is_read_on_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_MONITORS", str(tmp_path))
    train(tmp_path / "few-1")
    path = tmp_path / "few-1" / "rank-0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    chunk = next(one for one in lines if b'"line":"chunk"' in one)
    path.write_bytes(lines[0] + chunk)  # of this process, and not closed: it runs
    (view,) = views()
    assert view.ranks[0].whole.steps == 20
    blank = b" " * (len(chunk) - 1) + b"\n"  # who read it again would miss it
    path.write_bytes(lines[0] + blank + chunk)
    assert views()[0].ranks[0].whole.steps == 40
    assert find_view("few").ranks[0].whole.steps == 40
    with path.open("ab") as file:
        file.write(lines[-1])
    assert views() == []
    assert [one.state for one in views(everything=True)] == ["ended"]


def test_a_monitor_is_found_by_id_name_and_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_MONITORS", str(tmp_path))
    first, second = (train(tmp_path / name) for name in ("alpha-1", "alpha-2"))
    assert find_record("alpha-1").folder == first.folder
    assert find_record("few").folder == second.folder
    assert find_record("last").folder == second.folder
    with pytest.raises(UsageError, match="Several monitors"):
        find_record("alpha")
    with pytest.raises(UsageError, match="There is no monitor"):
        find_record("beta")


@pytest.mark.parametrize("kind", ["loader", "none"])
def test_a_script_needs_no_edit(kind: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    env = environment(TORCHSTONE_MONITORS=str(tmp_path / "monitors"))
    done = torchstone_command("monitor", "train.py", kind, "3", cwd=tmp_path, env=env)
    assert done.returncode == 3
    assert done.stdout == f"trained ['{kind}', '3']\n"
    assert "backward" in done.stderr
    shown = torchstone_command("monitor", "show", "train", "--json", "-", cwd=tmp_path, env=env)
    view = json.loads(shown.stdout)
    whole = view["ranks"][0]["whole"]
    assert whole["steps"] == (30 if kind == "loader" else 29)
    assert view["reason"] == "exit code 3"
    assert (whole["phases_ns"]["data"] is None) == (kind == "none")
    assert whole["phases_ns"]["optimizer"] > 0
    assert whole["samples"] == (120 if kind == "loader" else None)


def test_mistakes_are_a_sentence(tmp_path: Path) -> None:
    env = environment(TORCHSTONE_MONITORS=str(tmp_path / "monitors"))
    for words, said in (
        (("monitor", "nothing.py"), "There is no file nothing.py."),
        (("monitor", "show", "nothing"), "There is no monitor 'nothing'."),
        (("monitor", "compare", "a", "b"), "There is no monitor 'a'."),
        (("top", "--profile", "3"), "No monitor runs on this machine."),
    ):
        done = torchstone_command(*words, cwd=tmp_path, env=env)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    done = torchstone_command("top", "--once", cwd=tmp_path, env=env)
    assert done.returncode == 0
    assert "No monitor runs" in done.stdout


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    distributed = torch.distributed
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_the_parallel_model_that_a_script_makes_is_found(tmp_path: Path, one_rank: None) -> None:
    from torch.nn.parallel import DistributedDataParallel

    made = DistributedDataParallel.__init__
    with Monitor("script", folder=tmp_path / "record", auto=True) as m:
        model = DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert DistributedDataParallel.__init__ is made
    view = view_of(open_record(tmp_path / "record"))
    assert not [one for one in view.unseen if "ranks" in one or "model" in one]
    assert view.dtype == "float32"
    waited = view.ranks[0].whole.phases_ns["collective"]
    assert waited is not None
    assert waited > 0
    assert m._watched is None


def test_a_short_job_is_compared_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = SlowRank(1, 0.5, 10, "forward", "Rank 1 holds up the others.")
    monkeypatch.setattr("torchstone.monitor.session.slow_rank", lambda record, looks: found)
    m = train(tmp_path)
    (event,) = [one for one in m.events if one.what == "slow-rank"]
    assert (event.cause, event.figures["rank"]) == ("forward", 1.0)


def test_the_first_rank_speaks_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchstone.cli.monitor import monitor

    train(tmp_path / "record")

    def ran(request: Any, started: Any) -> tuple[int, Path]:
        started("ident")
        return 0, tmp_path / "record"

    monkeypatch.setattr("torchstone.lab.monitor.run_script", ran)
    for rank, speaks in (("1", False), ("0", True)):
        monkeypatch.setenv("RANK", rank)
        monitor.main(["train.py"], standalone_mode=False)
        assert ("recording as ident" in capsys.readouterr().err) == speaks


DDP = """
import sys, time, torch, torch.distributed as dist, torchstone
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
slow = dist.get_rank() == 1
with torchstone.monitor("ranks", model=model, optimizer=optimizer) as m:
    for number in m.steps(range(300)):
        time.sleep(0.06 if slow else 0.02)
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_the_rank_that_is_three_times_slower_is_named(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(DDP)
    env = environment(TORCHSTONE_MONITORS=str(tmp_path / "monitors"), OMP_NUM_THREADS="1")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]
    done = subprocess.run(
        [sys.executable, *launch], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (record,) = all_records(tmp_path / "monitors")
    assert isinstance(record, MonitorRecord)
    view = view_of(record)
    assert len(view.ranks) == 2
    assert view.slow_rank is not None
    assert (view.slow_rank.rank, view.slow_rank.phase) == (1, "forward")
    waits = [rank.whole.share("collective") or 0.0 for rank in view.ranks]
    assert waits[0] > 0.4 > 0.2 > waits[1]
    (event,) = [one for _, one in view.events if one.what == "slow-rank"]
    assert event.text.startswith("Rank 1 holds up the others")
