"""From what a user calls an interpreter to the path of one that works."""

from __future__ import annotations

import os
import re
import subprocess

from torchstone.records import UsageError

OLDEST = (3, 10)
"""The oldest Python that the worker's files run on."""
TRY_TIMEOUT_S = 20.0

_ASK = "import sys; print(sys.executable); print(sys.version_info[0], sys.version_info[1])"
_NAME = re.compile(r"(?:python)?(\d+(?:\.\d+){0,2})?\Z")


def resolve_interpreter(name: str) -> str:
    """The absolute path of a working interpreter for a name, a path or a venv folder.

    Each candidate is run: a version manager's shim is a file that can be run and still answers
    "command not found". The path is the one that the interpreter itself gives.
    """
    tried = _candidates(name)
    too_old: list[str] = []
    for candidate in tried:
        answer = _ask(candidate)
        if answer is None:
            continue
        path, version = answer
        if version >= OLDEST:
            return path
        too_old.append(f"{path} (Python {version[0]}.{version[1]})")
    raise _not_found(name, tried, too_old)


def _not_found(name: str, tried: list[str], too_old: list[str]) -> UsageError:
    oldest = ".".join(map(str, OLDEST))
    if too_old:
        return UsageError(
            f"The interpreter {name!r} is too old: {too_old[0]}.",
            f"Name one of Python {oldest} or newer{_found_here()}.",
        )
    reason = "does not run" if tried else "was not found"
    return UsageError(
        f"The interpreter {name!r} {reason}.",
        f"Give the path of a Python {oldest} or newer, or of a virtual environment{_found_here()}.",
    )


def _found_here() -> str:
    names = sorted(known_interpreters())
    return f"; found here: {', '.join(names)}" if names else ""


def known_interpreters() -> dict[str, str]:
    """Interpreters that look installed, by the name that would find them. None of them is run."""
    found: dict[str, str] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.path.basename(folder) == "shims":
            continue  # a shim stands for a version that may not be there
        for name in _list(folder):
            if re.match(r"python3\.\d+\Z", name) and _is_program(os.path.join(folder, name)):
                found.setdefault(name, os.path.join(folder, name))
    for version, path in _managed():
        found.setdefault(f"python{version[0]}.{version[1]}", path)
    return {name: path for name, path in found.items() if _version(name) >= OLDEST}


def _candidates(name: str) -> list[str]:
    """Files to try, best first."""
    expanded = os.path.expanduser(name)
    if os.path.isdir(expanded):
        inside = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
        paths = [os.path.join(expanded, part) for part in inside]
        return [os.path.abspath(path) for path in paths if _is_program(path)]
    if os.path.dirname(expanded):
        return [os.path.abspath(expanded)] if _is_program(expanded) else []
    names = [name] if not name[:1].isdigit() else [f"python{name}"]
    folders = [f for f in os.environ.get("PATH", "").split(os.pathsep) if f]
    found = [os.path.join(folder, n) for folder in folders for n in names]
    return [path for path in found if _is_program(path)] + _managed_matches(name)


def _managed_matches(name: str) -> list[str]:
    match = _NAME.match(name)
    if not name or match is None:
        return []
    wanted = _version(match[1] or "3")
    return [path for version, path in _managed() if version[: len(wanted)] == wanted]


def _managed() -> list[tuple[tuple[int, ...], str]]:
    """Versions kept by pyenv, newest first."""
    found = []
    roots = [os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")]
    for root in dict.fromkeys(root for root in roots if root):
        for folder in _list(os.path.join(root, "versions")):
            path = os.path.join(root, "versions", folder, "bin", "python")
            if re.match(r"\d+\.\d+(\.\d+)?\Z", folder) and _is_program(path):
                found.append((_version(folder), path))
    return sorted(found, reverse=True)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _ask(path: str) -> tuple[str, tuple[int, ...]] | None:
    """What the interpreter says of itself, or None if it does not run."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "LD_PRELOAD")}
    try:
        done = subprocess.run(
            [path, "-E", "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TRY_TIMEOUT_S,
            check=False,
            env=env,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    lines = done.stdout.split("\n")[-3:-1]  # start-up files may print before it
    if done.returncode != 0 or len(lines) != 2 or not os.path.isabs(lines[0]):
        return None
    return lines[0], _version(lines[1])
