"""Runs on a real Ray cluster: two nodes on this machine, each with its own raylet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.targets.support import HERE as TARGETS
from tests.targets.support import ROOT, eventually, torchstone
from torchstone.records import Outcome, RunView
from torchstone.store import open_store
from torchstone.store.heartbeat import running_ids

MAIN = "from torchstone.cli import main; main()"
FAST = ("--variants", "eager", "--budget-per-case", "0.3s", "--replicates", "2", "--fast")
PATIENCE_S = 240.0
ENV = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


@dataclass
class TwoNodes:
    address: str
    process: subprocess.Popen[str]

    def kill_one(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()


@pytest.fixture
def cluster() -> Iterator[TwoNodes]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))],
        env=ENV,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield TwoNodes(process.stdout.readline().strip(), process)
    process.stdin.close()
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    names = [f"toy{i}" for i in range(6)]
    models = "\n".join(
        f'[[model]]\nname = "{name}"\ntarget = "{TARGETS}/honest.py:make"\n' for name in names
    )
    (tmp_path / "toys.toml").write_text(f'name = "toys"\n{models}')
    return tmp_path


def started(here: Path, cluster: TwoNodes, *words: str) -> subprocess.Popen[str]:
    """`torchstone run` on the cluster, in the background."""
    command = ["run", *words, "--engine", "ray", "--address", cluster.address, "--db", "kept.db"]
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *command],
        cwd=here,
        env=ENV,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def view_of(here: Path) -> RunView:
    with open_store(str(here / "kept.db"), read_only=True) as store:
        return store.run_view("last")


def nodes_of(here: Path, view: RunView) -> dict[str, str]:
    """The node of each measured case, by model."""
    found = {}
    with open_store(str(here / "kept.db"), read_only=True) as store:
        for case in view.cases:
            arms = store.load(case.result_id).arms
            (node,) = {arm.environment.node for arm in arms if arm.environment}
            found[case.key.model] = node
    return found


def stored(here: Path) -> int:
    try:
        return len(view_of(here).cases)
    except Exception:  # not made yet, or being made
        return 0


def test_cases_are_split_over_two_nodes(here: Path, cluster: TwoNodes) -> None:
    run = started(here, cluster, "toys.toml", "-k", "toy[0-1]", "--threads", "2", *FAST)
    _, told = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, told
    view = view_of(here)
    assert [case.outcome.value for case in view.complete] == ["ok"] * 2
    assert len({case.result_id for case in view.cases}) == 2
    nodes = nodes_of(here, view)
    assert len(set(nodes.values())) == 2
    assert all(any(node in note for note in view.run.notes) for node in nodes.values())
    assert all(told.count(f"on {node}, ") for node in nodes.values())
    with open_store(str(here / "kept.db"), read_only=True) as store:
        environment = store.load(view.cases[0].result_id).arms[0].environment
    assert environment is not None
    assert environment.variables["OMP_NUM_THREADS"] == "2"  # Ray would say 1


@pytest.mark.slow
def test_models_of_the_quick_tier_end_as_they_do_without_a_cluster(
    here: Path, cluster: TwoNodes
) -> None:
    words = ("run", "torchbench", "-k", "lennard_jones|speech_lstm", "--threads", "1", "--fast")
    local = [sys.executable, "-c", MAIN, *words, "--db", "kept.db"]
    assert subprocess.run(local, cwd=here, env=ENV, capture_output=True).returncode == 0
    without = {case.key: case for case in view_of(here).complete}
    run = started(here, cluster, *words[1:])
    _, told = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, told
    view = view_of(here)
    assert len(set(nodes_of(here, view).values())) == 2
    assert {case.key for case in view.complete} == set(without)
    for case in view.complete:
        one, other = case.interval, without[case.key].interval
        assert case.outcome is without[case.key].outcome is Outcome.OK
        assert one is not None
        assert other is not None
        assert max(one[0], other[0]) <= min(one[1], other[1]), case.key.name


@pytest.mark.slow
def test_a_lost_node_and_a_killed_driver_lose_and_double_nothing(
    here: Path, cluster: TwoNodes
) -> None:
    first = started(here, cluster, "toys.toml", *FAST)
    assert eventually(lambda: stored(here) >= 1, PATIENCE_S)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = {case.key: case.result_id for case in view_of(here).cases}
    assert 1 <= len(before) < 6
    assert eventually(
        lambda: not running_ids(here / "kept.db"), PATIENCE_S
    )  # its workers end with it

    second = started(here, cluster, "--resume", "last")
    assert eventually(lambda: stored(here) > len(before), PATIENCE_S)
    cluster.kill_one()
    _, told = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, told
    assert "is lost" in told
    view = view_of(here)
    assert [case.outcome.value for case in view.complete] == ["ok"] * 6
    ids = {case.key: case.result_id for case in view.cases}
    assert len(set(ids.values())) == 6
    assert all(ids[key] == result for key, result in before.items())


@pytest.mark.slow
def test_a_cluster_of_our_own_leaves_nothing_behind(here: Path) -> None:
    words = ("run", "toys.toml", "-k", "toy0", *FAST, "--engine", "ray", "--db", "kept.db")
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # Ray's sockets lie in it
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *words],
            cwd=here,
            env={**ENV, "TMPDIR": short},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        assert [case.outcome.value for case in view_of(here).complete] == ["ok"]
        left = [one.name for one in Path(short).iterdir()]
        assert not [name for name in left if not name.startswith("torchinductor")], left


def test_without_a_cluster_it_says_so(here: Path) -> None:
    done = torchstone(
        "run",
        "toys.toml",
        "--engine",
        "ray",
        "--address",
        "127.0.0.1:1",
        "--db",
        "kept.db",
        cwd=here,
    )
    assert done.returncode == 2
    assert "There is no Ray cluster at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "rai"), "Did you mean ray?"),
        (("--address", "somewhere:1"), "Add --engine ray."),
    ],
)
def test_a_slip_has_a_remedy(here: Path, words: tuple[str, ...], said: str) -> None:
    done = torchstone("run", "toys.toml", *words, "--db", "kept.db", cwd=here)
    assert done.returncode == 2
    assert said in done.stderr
