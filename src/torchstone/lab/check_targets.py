"""What `torchstone check` measures: named, configured, of a suite, or what tests compare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchstone.lab.revisions import Side, rooted
from torchstone.lab.worktrees import Repository
from torchstone.machine.interpreters import resolve_interpreter
from torchstone.records import NotRunError, UsageError
from torchstone.workloads.suites import find_suite
from torchstone.workloads.suites.base import TIERS
from torchstone.workloads.suites.files import is_suite_file, read_suite_file, toml_library

TABLE, KEY = "torchstone", "check"
MOST_TARGETS = 1000
MOST_LETTERS = 400
LIST_VARIABLE = "TORCHSTONE_LIST_TARGETS"
"""Names the file that the pytest plug-in writes targets to."""
PLUGIN = "torchstone.lab.pytest_targets"
COLLECT_TIMEOUT_S = 600.0
_FORM = (
    'Name a target, or list some in pyproject.toml: [tool.torchstone] check = ["bench.py:make"].'
)


def configured(repository: Repository, side: Side) -> tuple[str, ...]:
    """`[tool.torchstone] check` of the revision's `pyproject.toml`; paths count from the top."""
    path = side.tree / "pyproject.toml"
    if not path.is_file():
        return ()
    try:
        content = toml_library(str(path)).loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"pyproject.toml cannot be read: {error}.") from None
    table = content.get("tool", {}).get(TABLE, {})
    listed: Any = table.get(KEY, []) if isinstance(table, dict) else None
    if not isinstance(listed, list) or len(listed) > MOST_TARGETS or not all(map(_short, listed)):
        raise UsageError(
            "[tool.torchstone] check in pyproject.toml is not a list of targets.",
            'Write check = ["bench.py:make", "pkg.bench:fn()"].',
        )
    return tuple(dict.fromkeys(rooted(repository, one, repository.top) for one in listed))


def _short(one: object) -> bool:
    return isinstance(one, str) and len(one) <= MOST_LETTERS


def of_suite(repository: Repository, side: Side, word: str) -> tuple[str, ...]:
    """The targets of a suite file in the repository, or the quick models of an installed suite."""
    if is_suite_file(word):
        path = Path(os.path.abspath(repository.here / word))
        inside = repository.top in path.parents
        found = side.tree / path.relative_to(repository.top) if inside else path
        listed = read_suite_file(str(found)).models()
        texts = [one.target for one in listed if one.target]
        return tuple(_back(repository, side, text) for text in texts)
    suite = find_suite(word)
    prefix = suite.prefix or suite.name
    scale = "@small" if "small" in suite.scales else ""
    quick = [m.name for m in suite.models() if m.tier == TIERS[0]]
    names = quick or [model.name for model in suite.models()]
    return tuple(f"{prefix}:{name}{scale}" for name in names)


def of_pytest(repository: Repository, side: Side) -> tuple[str, ...]:
    """What the tests that use the `torchstone` fixture compare; the tests measure nothing."""
    python = resolve_interpreter(side.python) if side.python else sys.executable
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        path = os.path.join(folder, "targets.jsonl")
        env = {**os.environ, **dict(side.env), LIST_VARIABLE: path}
        command = [python, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                command,
                cwd=side.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=COLLECT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotRunError("pytest took too long to say which tests use the fixture.") from None
        lines = Path(path).read_text("utf-8").splitlines() if os.path.exists(path) else []
    texts = [json.loads(line) for line in lines[:MOST_TARGETS]]
    found = tuple(dict.fromkeys(_back(repository, side, text) for text in texts))
    if not found:
        why = "no test uses the torchstone fixture"
        if done.returncode not in (0, 5):  # 5: no tests ran
            why = "pytest ended with exit code " + str(done.returncode)
        raise UsageError(f"There is nothing to check: no target was named, and {why}.", _FORM)
    return found


def _back(repository: Repository, side: Side, text: str) -> str:
    """A target of a tree as seen from the top."""
    inside = f"{side.tree}{os.sep}"
    if text.startswith(inside):
        return text.removeprefix(inside)
    return rooted(repository, text, repository.top / repository.inside)


def targets_of(
    repository: Repository, side: Side, asked: Sequence[str], suite: str
) -> tuple[tuple[str, ...], bool]:
    """The targets to measure, and whether a person named each of them."""
    named = tuple(dict.fromkeys(rooted(repository, one) for one in asked))
    if suite:
        return tuple(dict.fromkeys((*named, *of_suite(repository, side, suite)))), False
    if named:
        return named, True
    return configured(repository, side) or of_pytest(repository, side), False


def list_target(text: Any) -> None:
    """Write a target down for `of_pytest`; called by the plug-in."""
    with open(os.environ[LIST_VARIABLE], "a", encoding="utf-8") as file:
        file.write(json.dumps(str(text)) + "\n")
