"""Which libraries may be imported before a worker is forked.

A file may set variables, or anything else, before it imports torch. So only the imports that stand
at its very beginning count: up to the first statement that is none, and up to the first import of a
module beside the file, which may do anything too. Importing these earlier changes nothing.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Iterator

from torchstone.records import ArmSpec
from torchstone.workloads.target import parse_target

SUITES = ("suite",)
"""Models of all suites share their libraries: nothing of the user's own runs there."""
_BESIDE = ":"
"""Between a module and a name that is taken from it; some libraries import by being asked."""


def libraries_ahead(arm: ArmSpec) -> tuple[str, ...]:
    """`torch`, `transformers:BertModel`, ... in order; empty where nothing is worth it."""
    if arm.statement is not None or not arm.target:
        return ()
    target = parse_target(arm.target)
    if target.kind == "suite":
        return SUITES
    if target.kind != "file" or not arm.device.startswith("cpu"):
        return ()  # a device may be taken while a library is imported, and does not outlive a fork
    return _leading_imports(target.place)


def import_named(libraries: tuple[str, ...]) -> None:
    """Import them, in order."""
    for library in libraries:
        module, _, name = library.partition(_BESIDE)
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")


def _leading_imports(place: str) -> tuple[str, ...]:
    try:
        with open(place, encoding="utf-8") as file:
            body = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):
        return ()  # the arm itself will say so
    folder = os.path.dirname(os.path.abspath(place))
    found: list[str] = []
    for statement in body:
        names = _names(statement)
        if names is None or any(_is_local(name, folder) for name in names):
            break
        found += [name for name in names if not _is_standard(name)]
    return tuple(dict.fromkeys(found))


def _names(statement: ast.stmt) -> list[str] | None:
    """What an import asks for; nothing of a text; None of any other statement."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return []
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
        return list(_taken(statement.module, statement.names))
    return None


def _taken(module: str, names: list[ast.alias]) -> Iterator[str]:
    for alias in names:
        yield module if alias.name == "*" else f"{module}{_BESIDE}{alias.name}"


def _top(name: str) -> str:
    return name.partition(_BESIDE)[0].partition(".")[0]


def _is_standard(name: str) -> bool:
    return _top(name) in sys.stdlib_module_names


def _is_local(name: str, folder: str) -> bool:
    """A file or folder beside the target comes before whatever is installed."""
    place = os.path.join(folder, _top(name))
    return os.path.exists(f"{place}.py") or os.path.isdir(place)
