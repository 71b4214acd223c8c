"""Interpreters by name, path and folder; shims and other files that only look like one."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from torchstone.machine.interpreters import known_interpreters, resolve_interpreter
from torchstone.records import UsageError

OWN = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _pretend(path: Path, version: tuple[int, int]) -> Path:
    """A program that answers as an interpreter of another version would."""
    return _program(path, f"#!/bin/sh\necho {path}\necho {version[0]} {version[1]}\n")


def _same(left: str, right: str) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)


def test_a_path_and_this_interpreter() -> None:
    assert _same(resolve_interpreter(sys.executable), sys.executable)


def test_a_venv_folder_gives_the_venvs_own_interpreter(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    found = resolve_interpreter(str(tmp_path / "env"))
    assert found.startswith(str(tmp_path / "env"))


def test_a_shim_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "shims" / OWN, SHIM)
    real = tmp_path / "bin" / OWN
    real.parent.mkdir()
    real.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'bin'}")
    assert "shims" not in resolve_interpreter(OWN)


def test_what_the_shim_stands_for_is_found_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "shims" / "python3.13", SHIM)
    for version in ("3.13.2", "3.13.10", "3.12.9"):
        minor = int(version.split(".")[1])
        _pretend(tmp_path / "root" / "versions" / version / "bin" / "python", (3, minor))
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "root"))
    assert "/3.13.10/" in resolve_interpreter("python3.13")
    assert "/3.13.10/" in resolve_interpreter("3.13")
    assert "/3.13.2/" in resolve_interpreter("3.13.2")


def test_a_missing_one_is_an_error_that_names_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(tmp_path / "root" / "versions" / "3.12.9" / "bin" / "python", (3, 12))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "root"))
    with pytest.raises(UsageError, match=r"python3\.99.*not found") as error:
        resolve_interpreter("python3.99")
    assert "python3.12" in error.value.remedy
    assert "python3.12" in known_interpreters()


@pytest.mark.parametrize("name", ["", "no such thing", "/no/such/python", "python;id", "../x"])
def test_nonsense_is_an_error(name: str) -> None:
    with pytest.raises(UsageError):
        resolve_interpreter(name)


def test_a_file_that_does_not_run_and_an_old_interpreter(tmp_path: Path) -> None:
    broken = _program(tmp_path / "broken", SHIM)
    with pytest.raises(UsageError, match="does not run"):
        resolve_interpreter(str(broken))
    not_python = _program(tmp_path / "other", "#!/bin/sh\necho hello\n")
    with pytest.raises(UsageError, match="does not run"):
        resolve_interpreter(str(not_python))
    failing = _pretend(tmp_path / "failing", (3, 12))
    _program(failing, failing.read_text() + "exit 3\n")
    with pytest.raises(UsageError, match="does not run"):
        resolve_interpreter(str(failing))
    with pytest.raises(UsageError, match=r"too old.*3\.9"):
        resolve_interpreter(str(_pretend(tmp_path / "old", (3, 9))))
