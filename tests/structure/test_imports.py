"""Who imports whom, and what is loaded when: the contracts, and the same by running it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure.places import PACKAGE, ROOT, SRC, sources

# What travels to the worker, where there is only the standard library and what an arm imports.
PAYLOAD = ("records", "machine", "workloads", "variants", "measure")
# Measures the machine with torch; the payload leaves it behind.
AT_HOME = "calibrate"
# Of these, the rooms that may meet torch, and then only once an arm has brought it.
MAY_MEET_TORCH = ("workloads", "variants", "measure")

IMPORT_EACH = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
missing = {}
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing[name] = error.name
print(json.dumps(missing))
"""

LOADED_BY = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_by(*modules: str) -> set[str]:
    done = run(sys.executable, "-c", LOADED_BY, *modules, PYTHONPATH=str(SRC))
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_import_contracts_hold() -> None:
    linter = (
        "import sys; from importlinter.cli import lint_imports_command as go; "
        "sys.argv = ['lint-imports', '--no-cache']; go()"
    )
    done = run(sys.executable, "-c", linter, PYTHONPATH=str(SRC))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.skipif(not (PACKAGE / "cli" / "__init__.py").exists(), reason="no cli yet")
def test_the_command_line_starts_without_torch_and_numpy() -> None:
    loaded = loaded_by("torchstone.cli")
    assert loaded & {"torch", "numpy", "sqlalchemy", "scipy"} == set()
    assert "torchstone" in loaded


def test_the_init_loads_nothing_but_itself() -> None:
    loaded = loaded_by("torchstone") - loaded_by("__future__", "typing")
    assert loaded == {"torchstone"}


def test_the_payload_needs_only_the_standard_library(tmp_path: Path) -> None:
    """Put the payload's rooms alone in a folder and import every file with no site-packages."""
    payload = tmp_path / "torchstone"
    payload.mkdir()
    shutil.copy(PACKAGE / "__init__.py", payload)
    present = [room for room in PAYLOAD if (PACKAGE / room / "__init__.py").exists()]
    for room in present:
        shutil.copytree(PACKAGE / room, payload / room, ignore=shutil.ignore_patterns(AT_HOME))
    files = [
        path
        for path in sources()
        if path.relative_to(PACKAGE).parts[0] in present and AT_HOME not in path.parts
    ]
    names = [module_name(path) for path in files]
    assert "torchstone.records" in names

    done = run(sys.executable, "-I", "-S", "-c", IMPORT_EACH, str(tmp_path), *names)
    assert done.returncode == 0, done.stderr
    missing: dict[str, str] = json.loads(done.stdout.splitlines()[-1])

    inits = {f"torchstone.{room}" for room in present}
    # A file deep in these rooms may need torch; nobody imports it before the arm has.
    torch_files = {
        name
        for name, what in missing.items()
        if what == "torch" and name.split(".")[1] in MAY_MEET_TORCH and name not in inits
    }
    assert {n: w for n, w in missing.items() if n not in torch_files} == {}


@pytest.mark.parametrize("room", ["records", "machine"])
def test_records_and_machine_never_name_another_library(room: str) -> None:
    """Late imports count too: these rooms run before an arm has brought anything."""
    outside = []
    for path in sorted((PACKAGE / room).rglob("*.py")):
        if AT_HOME in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            tops = {name.split(".")[0] for name in names}
            outside += [
                f"{path.name}:{node.lineno} {top}"
                for top in tops - sys.stdlib_module_names - {"torchstone"}
            ]
    assert outside == []
