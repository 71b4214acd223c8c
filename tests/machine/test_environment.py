"""The environment record: complete, without secrets, and never a reason to fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.machine.support import clean_env, run
from torchstone.machine import machine_id
from torchstone.machine.software import (
    PACKAGES,
    _build_settings,
    describe_environment,
    git_state,
    run_links,
    web_address,
)
from torchstone.records import Environment, from_data, to_data

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def test_the_record_describes_this_machine_and_survives_json() -> None:
    record = describe_environment({"OMP_NUM_THREADS": "3"}, None, {"intra": 2}, "keep")
    assert record.cpu["model"]
    assert int(record.cpu["logical_cores"]) == os.cpu_count()
    assert int(record.cpu["affinity"]) >= 1
    assert record.memory_bytes > 1 << 28
    assert record.python["version"]
    assert record.python["gil"] in ("on", "off")
    assert record.os["system"]
    assert record.os["kernel"]
    assert record.variables["OMP_NUM_THREADS"] == "3"
    assert (record.threads, record.allocator, record.git) == ({"intra": 2}, "keep", None)
    assert from_data(Environment, json.loads(json.dumps(to_data(record)))) == record


def test_the_machine_id_is_stable_and_depends_on_what_decides_speed() -> None:
    one = describe_environment({}, None, {}, "default").machine_id
    assert one == describe_environment({"A": "b"}, None, {"x": 1}, "keep").machine_id
    cpu = {"model": "m", "logical_cores": "2", "architecture": "x"}
    base = machine_id(cpu, {"L2": 1}, 16 << 30)
    assert base == machine_id({**cpu, "affinity": "1"}, {"L2": 1}, (16 << 30) - 12345678)
    assert base != machine_id({**cpu, "model": "n"}, {"L2": 1}, 16 << 30)
    assert base != machine_id({**cpu, "logical_cores": "4"}, {"L2": 1}, 16 << 30)
    assert base != machine_id(cpu, {"L2": 2}, 16 << 30)
    assert base != machine_id(cpu, {"L2": 1}, 32 << 30)


def test_hashes_agree_between_arms_only_under_one_salt() -> None:
    def hidden(salt: bytes | None) -> object:
        return describe_environment({"MINE": "1"}, None, {}, "default", salt).hidden_variables

    assert hidden(b"s" * 16) == hidden(b"s" * 16)
    assert hidden(None) != hidden(None)


@needs_git
def test_no_secret_lands_in_it(tmp_path: Path) -> None:
    secret, token = "planted-5ecret-value", "hf_" + "Ab1" * 12
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    _git(tmp_path, "checkout", "-q", "-b", f"branch-{secret}")
    code = (
        "import json, sys; from torchstone.machine.software import describe_environment as d;"
        "from torchstone.records import to_data;"
        "arm = {'MY_OWN': sys.argv[1] if sys.argv[1:] else 'quiet-arm-value'};"
        f"print(json.dumps(to_data(d(arm, {str(tmp_path)!r}, {{}}, 'default'))))"
    )
    env = clean_env(
        MY_PASSWORD=secret,
        OMP_DISPLAY_ENV=token,
        TORCH_LOGS=secret,
        SOME_URL=f"http://a:{secret}@b",
    )
    text = run(code, env)
    assert secret not in text
    assert token not in text
    assert "quiet-arm-value" not in text
    assert json.loads(text)["git"]["branch"] == "branch-***"
    assert "MY_OWN" in json.loads(text)["hidden_variables"]


def test_torch_is_described_only_if_it_is_there_and_never_imported() -> None:
    code = (
        "import sys; from torchstone.machine.software import describe_environment as d;"
        "r = d({}, None, {}, 'default'); print(dict(r.torch), 'pytest' in r.packages,"
        f"[n for n in {PACKAGES!r} if n in sys.modules])"
    )
    assert run(code) == "{} True []"


def test_a_torch_in_the_process_is_described() -> None:
    torch = pytest.importorskip("torch")
    record = describe_environment({}, None, {}, "default")
    assert record.torch["version"] == torch.__version__ == record.packages["torch"]
    assert record.torch["deterministic"] == "False"
    assert "numpy" in record.packages


def test_a_broken_torch_does_not_cost_the_record() -> None:
    code = (
        "import sys, types; t = types.ModuleType('torch'); t.__version__ = '0'; "
        "sys.modules['torch'] = t; "
        "from torchstone.machine.software import describe_environment as d; "
        "print(dict(d({}, None, {}, 'default').torch))"
    )
    assert run(code) == "{'version': '0'}"


def test_the_build_summary_is_trimmed() -> None:
    config = (
        "PyTorch built with:\n  - GCC 11.2\n  - OpenMP 201511\n  - Build settings: BLAS_INFO=mkl,"
        " BUILD_TYPE=Release, CXX_FLAGS= -O2 -Wall -I/somewhere/x -fPIC -DNDEBUG -fdir=/a/b,"
    )
    found = _build_settings(config)
    assert found["blas_info"] == "mkl"
    assert found["compiler"] == "GCC 11.2"
    assert found["cxx_flags"] == "-O2 -fPIC -DNDEBUG"


@needs_git
def test_git_state_follows_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state(str(tmp_path)) is None
    _git(tmp_path, "init", "-q", "-b", "main")
    assert git_state(str(tmp_path)) is None  # no commit yet
    (tmp_path / "model.py").write_text("x = 1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "one")
    commit = _git(tmp_path, "rev-parse", "HEAD").strip()
    # As inside a hook of another repository: the target's own one must answer.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    state = git_state(str(tmp_path))
    assert state is not None
    assert (state.commit, state.branch, state.dirty) == (
        commit,
        "main",
        False,
    )
    (tmp_path / "notes.log").write_text("x")
    assert git_state(str(tmp_path)) == state
    (tmp_path / "new.py").write_text("x")
    assert _dirty(tmp_path)
    (tmp_path / "new.py").unlink()
    (tmp_path / "model.py").write_text("x = 2\n")
    assert _dirty(tmp_path)
    _git(tmp_path, "checkout", "-q", "--", ".")
    _git(tmp_path, "checkout", "-q", "--detach")
    assert git_state(str(tmp_path)) == type(state)(commit, "", False)


@needs_git
def test_a_target_in_an_untracked_folder_is_dirty(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    inside = tmp_path / "new" / "deep"
    inside.mkdir(parents=True)
    (inside / "data.bin").write_text("x")
    assert _dirty(inside)
    assert not _dirty(tmp_path)


def _dirty(folder: Path) -> bool:
    state = git_state(str(folder))
    assert state is not None
    return state.dirty


def test_git_missing_or_folder_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert git_state(str(tmp_path / "none")) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/lab/models.git", "https://github.com/lab/models"),
        ("https://me:secret@git.example/lab/models", "https://git.example/lab/models"),
        ("git@git.example:lab/models.git", "https://git.example/lab/models"),
        ("ssh://git@git.example:2222/lab/models", "https://git.example/lab/models"),
        ("/srv/git/models.git", ""),
        ("../models", ""),
        ("", ""),
    ],
)
def test_a_remote_as_people_open_it(remote: str, address: str) -> None:
    assert web_address(remote) == address


def test_where_a_job_and_its_pull_request_are(tmp_path: Path) -> None:
    hub = {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "lab/models",
        "GITHUB_REF": "refs/pull/17/merge",
        "GITHUB_RUN_ID": "99",
    }
    assert run_links(str(tmp_path), hub) == {
        "pull_request": "https://github.com/lab/models/pull/17",
        "job": "https://github.com/lab/models/actions/runs/99",
    }
    lab = {
        "CI_PROJECT_URL": "https://gitlab.example/lab/models",
        "CI_MERGE_REQUEST_IID": "4",
        "CI_JOB_URL": "https://gitlab.example/lab/models/-/jobs/5",
    }
    assert run_links(str(tmp_path), lab) == {
        "pull_request": "https://gitlab.example/lab/models/-/merge_requests/4",
        "job": "https://gitlab.example/lab/models/-/jobs/5",
    }
    assert run_links(str(tmp_path), {"BUILD_URL": "javascript:1"}) == {}
