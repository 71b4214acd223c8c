"""The commit of a folder's git repository, and whether its files differ from it."""

from __future__ import annotations

import os
import subprocess

from torchstone.records import GitState

GIT_TIMEOUT_S = 10.0
_SOURCES = (".py", ".pyx", ".pyi", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".so", ".toml")


def git_state(folder: str) -> GitState | None:
    """Commit, branch and dirty flag; None without git, a repository or a commit.

    Dirty: a tracked file was changed, or source code is there that git does not know (other
    untracked files, such as logs, do not change what was measured).
    """
    text = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z")
    if text is None:
        return None
    headers, dirty = {}, False
    for entry in text.split("\0"):
        if entry.startswith("# "):
            key, _, value = entry[2:].partition(" ")
            headers[key] = value
        elif entry.startswith(("1 ", "2 ", "u ")):
            dirty = True
        elif entry.startswith("? "):
            dirty = dirty or entry.endswith(_SOURCES) or _holds(folder, entry[2:])
    commit = headers.get("branch.oid", "")
    if not commit or commit == "(initial)":
        return None
    branch = headers.get("branch.head", "")
    return GitState(commit, "" if branch == "(detached)" else branch, dirty)


def _holds(folder: str, untracked: str) -> bool:
    """Whether the target's folder lies inside an untracked one, which git lists as a whole."""
    if not untracked.endswith("/"):
        return False
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return False
    outer = os.path.realpath(os.path.join(top.strip(), untracked))
    return (os.path.realpath(folder) + os.sep).startswith(outer + os.sep)


def _git(folder: str, *arguments: str) -> str | None:
    # GIT_DIR and the like would make git answer for another repository, as inside a hook.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env.update(GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0", GIT_ASKPASS="", LC_ALL="C")
    env.pop("LD_PRELOAD", None)  # the arm's allocator is not meant for git
    command = ["git", "-c", "core.fsmonitor=false", "-C", folder, *arguments]
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
