"""The GitHub action, run against a local checkout with stand-ins for what GitHub gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.show.test_check import REPORT
from tests.structure.places import ROOT
from torchstone.show.check import MARKER, check_dumps

yaml = pytest.importorskip("yaml")
ACTIONS = [ROOT / "action.yml", ROOT / "comment" / "action.yml"]
HOW_TO = ROOT / "docs" / "how-to" / "check.md"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    return read(path)["runs"]["steps"]


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_no_text_of_a_pull_request_becomes_part_of_a_script(path: Path) -> None:
    for step in steps(path):
        assert "${{" not in step.get("run", ""), step["name"]
        if "run" in step:
            assert step["shell"] == "bash"
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_other_actions_are_pinned(path: Path) -> None:
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])


def workflows() -> dict[str, Any]:
    found = re.findall(r"```yaml\n(# \.github/workflows/\S+\n.*?)```", HOW_TO.read_text(), re.S)
    return {yaml.safe_load(text)["name"]: yaml.safe_load(text) for text in found}


def test_the_documented_workflows_are_safe_for_forks() -> None:
    known = workflows()
    measure, comment = known["speed"], known["speed comment"]
    # YAML reads the key `on` as true.
    assert measure[True] == "pull_request"
    assert measure["permissions"] == {"contents": "read"}
    assert comment[True]["workflow_run"]["workflows"] == ["speed"]
    uses = [step["uses"] for step in comment["jobs"]["comment"]["steps"]]
    assert uses == ["torchstone/torchstone/comment@main"]  # nothing is checked out there
    inputs = read(ROOT / "action.yml")["inputs"]
    for job in measure["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("torchstone/"):
                assert set(step["with"]) <= set(inputs)


def script(path: Path, name: str) -> str:
    return next(step["run"] for step in steps(path) if step["name"] == name)


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def test_the_inputs_arrive_as_they_were_written(tmp_path: Path) -> None:
    """With a stand-in for Python's torchstone that writes its arguments down."""
    (tmp_path / "torchstone").mkdir()
    (tmp_path / "torchstone" / "__init__.py").write_text("")
    (tmp_path / "torchstone" / "__main__.py").write_text(
        "import json, sys; json.dump(sys.argv[1:], open('arguments.json', 'w')); sys.exit(3)"
    )
    program(tmp_path, "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    env = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        "TARGETS": 'a.py:make\n"b c.py:f()"',
        "BASE": "$(touch owned)",
        "MARGIN": "3%",
        "BUILD": "",
        "ON_UNKNOWN": "pass",
        "ARGUMENTS": "--budget 5s",
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    done = subprocess.run(
        [*command, script(ACTIONS[0], "Check")], cwd=tmp_path, env=env, capture_output=True
    )
    assert done.returncode == 3, done.stderr
    assert json.loads((tmp_path / "arguments.json").read_text()) == [
        *("check", "--github", "--json", "torchstone-check.json", "--no-save", "--margin", "3%"),
        *("--base", "$(touch owned)", "--on-unknown", "pass", "--budget", "5s"),
        *("a.py:make", "b c.py:f()"),
    ]
    assert not (tmp_path / "owned").exists()


class GitHub(ThreadingHTTPServer):
    """A stand-in for GitHub's API with one pull request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.comments: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str]] = []


class Answers(BaseHTTPRequestHandler):
    server: GitHub

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _answer(self, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret"
        if "/pulls?" in self.path:
            assert "head=someone%3Afeature" in self.path
            self._answer([{"number": 7, "head": {"sha": "c" * 40}}])
        else:
            self._answer(self.server.comments)

    def do_POST(self) -> None:
        self.server.calls.append(("POST", self.path))
        self.server.comments.append({"id": 11, "user": {"type": "Bot"}, **self._body()})
        self._answer({})

    def do_PATCH(self) -> None:
        self.server.calls.append(("PATCH", self.path))
        self.server.comments[-1]["body"] = self._body()["body"]
        self._answer({})


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def post(
    tmp_path: Path, github: GitHub, report: str, sha: str = "c" * 40, conclusion: str = "failure"
) -> Any:
    if report:
        (tmp_path / "check.json").write_text(report)
    run = {
        "event": "pull_request",
        "conclusion": conclusion,
        "html_url": "https://github.example/runs/1",
        "head_sha": sha,
        "head_branch": "feature",
        "head_repository": {"owner": {"login": "someone"}},
    }
    (tmp_path / "event.json").write_text(json.dumps({"workflow_run": run}))
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": "torchstone/torchstone",
        "GITHUB_TOKEN": "secret",
    }
    command = [sys.executable, str(ROOT / "comment" / "post.py"), str(tmp_path / "check.json")]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_one_comment_is_written_and_then_renewed(tmp_path: Path, github: GitHub) -> None:
    github.comments.append({"id": 1, "user": {"type": "User"}, "body": f"{MARKER} not ours"})
    for _ in range(2):
        done = post(tmp_path, github, check_dumps(REPORT, 1))
        assert done.returncode == 0, done.stderr
    repository = "/repos/torchstone/torchstone/issues"
    assert github.calls == [
        ("POST", f"{repository}/7/comments"),
        ("PATCH", f"{repository}/comments/11"),
    ]
    assert "Slower: 1 of 2 targets" in github.comments[-1]["body"]


def test_a_report_that_is_none_is_not_posted(tmp_path: Path, github: GitHub) -> None:
    done = post(tmp_path, github, '{"body": "@everyone"}')
    assert done.returncode == 1
    assert github.calls == []


def test_a_pull_request_that_moved_on_is_left_alone(tmp_path: Path, github: GitHub) -> None:
    done = post(tmp_path, github, check_dumps(REPORT, 1), sha="d" * 40)
    assert done.returncode == 0
    assert github.calls == []


def test_a_check_that_could_not_run_says_so(tmp_path: Path, github: GitHub) -> None:
    """There is no artifact then; the figures of an older commit must not stay."""
    assert post(tmp_path, github, "", conclusion="cancelled").returncode == 0
    assert github.calls == []
    assert post(tmp_path, github, "").returncode == 0
    assert "without a report" in github.comments[-1]["body"]
    assert "https://github.example/runs/1" in github.comments[-1]["body"]
