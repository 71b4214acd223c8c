"""Target names: `file.py:make`, `file.py:fn()`, `pkg.mod:make`, `suite:Model@scale`.

Read and checked without importing anything of the user's, so that a mistake costs nothing.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from torchstone.records import ArmSpec, UsageError
from torchstone.records.plugins import did_you_mean
from torchstone.workloads.suites.base import known_suites, load_suite

DEFAULT_FACTORY = "make"

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Target:
    """A parsed target. `kind` is `file`, `module` or `suite`; `direct`: `name()` is timed. A
    suite's model without a scale is the model as it is: `full`."""

    kind: str
    place: str
    name: str
    direct: bool = False
    scale: str = ""

    @property
    def text(self) -> str:
        """The target as a person would type it."""
        scale = f"@{self.scale}" if self.scale else ""
        return f"{self.place}:{self.name}{'()' if self.direct else ''}{scale}"


def parse_target(text: str) -> Target:
    """The parts of a target name, or a `UsageError` that shows the form."""
    prefix, colon, name = text.partition(":")
    if colon and prefix in known_suites():
        model, _, scale = name.partition("@")
        return Target("suite", prefix, model, scale=scale)
    place, colon, name = text.rpartition(":")
    if not colon:
        place, name = text, DEFAULT_FACTORY
    direct = name.endswith("()")
    name = name[:-2] if direct else name
    if not place or not _NAME.fullmatch(name):
        raise UsageError(
            f"{text!r} is not a target.",
            "Write path.py:make (a factory), path.py:fn() (a function) or pkg.module:make.",
        )
    if place.endswith(".py") or os.sep in place:
        return Target("file", from_home(place), name, direct)
    if not _NAME.fullmatch(place):
        raise UsageError(f"{text!r} is not a target.", _known_suites())
    return Target("module", place, name, direct)


def from_home(path: str) -> str:
    """The path with its `~/` spelt out: stored commands have it, in quotes, where no shell does."""
    return os.path.expanduser(path) if path.startswith("~/") else path


def _known_suites() -> str:
    known = ", ".join(sorted(known_suites()))
    return f"Known suites: {known}." if known else "Write path.py:make or pkg.module:make."


def check_target(text: str) -> Target:
    """Parse, and make sure that the file and the name in it, or the suite's model, exist."""
    target = parse_target(text)
    if target.kind == "suite":
        _check_model(target)
    if target.kind != "file":
        return target
    if os.path.isdir(target.place):
        raise UsageError(f"{target.place} is a folder, not a Python file.", "Name a file in it.")
    if not os.path.isfile(target.place):
        raise UsageError(f"There is no file {target.place}.", near_files(target.place))
    try:
        with open(target.place, encoding="utf-8") as file:
            names = _bound_names(file.read(), target.place)
    except OSError as error:
        raise UsageError(f"{target.place} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{target.place} is not a Python source file (not UTF-8).") from None
    if names.complete and target.name.split(".")[0] not in names.bound:
        raise UsageError(
            f"{target.place} has no {target.name!r}.",
            suggest(target.name, names.top_level, target.place, "()" if target.direct else ""),
        )
    return target


def _check_model(target: Target) -> None:
    suite = load_suite(target.place)
    scales = suite.scales
    if target.scale and target.scale not in scales:
        known = " or ".join(f"{target.place}:{target.name}@{scale}" for scale in scales)
        raise UsageError(
            f"{suite.name} has no scale {target.scale!r}.",
            f"Write {known}." if known else f"Write {target.place}:{target.name}.",
        )
    names = [model.name for model in suite.models()]
    accepts = getattr(suite, "accepts", None)  # a library may have more models than are listed
    if target.name not in names and not (accepts is not None and accepts(target.name)):
        near = difflib.get_close_matches(target.name, names, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(f'{target.place}:{n}' for n in near)}? " if near else ""
        raise UsageError(
            f"{suite.name} has no model {target.name!r}.",
            f"{hint}`torchstone list models {suite.name}` lists them.",
        )


def suggest(wanted: str, names: set[str], place: str, ending: str = "") -> str:
    """A remedy that names the nearest candidates, written as the wanted one was."""
    public = sorted(name for name in names if not name.startswith("_"))
    near = difflib.get_close_matches(wanted, public, n=3, cutoff=0.4) or public[:5]
    if not near:
        return f"{place} defines no public name; give it a factory `def make(): ...`."
    return "Did you mean " + " or ".join(f"{place}:{name}{ending}" for name in near) + "?"


def near_files(path: str, endings: tuple[str, ...] = (".py",)) -> str:
    """A remedy for a file that is not there: the nearest names in its folder."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"There is no folder {folder} either."
    files = [name for name in os.listdir(folder) if name.endswith(endings)]
    return did_you_mean(os.path.basename(path), files, 3, 0.4).rstrip() or "Check the path."


@dataclass(frozen=True)
class _Names:
    """Names that a file binds, and whether the list is sure to be complete. What a function binds
    may be global; only what stands outside of all is `top_level` for sure."""

    top_level: set[str]
    bound: set[str]
    complete: bool


def _bound_names(source: str, place: str) -> _Names:
    try:
        tree = ast.parse(source, place)
    except (SyntaxError, ValueError):
        # Importing it will say what is wrong, with the line.
        return _Names(set(), set(), complete=False)
    bound: set[str] = set()
    complete = True
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            complete &= node.func.id not in ("globals", "exec", "setattr", "vars")
    complete &= not {"*", "__getattr__"} & bound
    return _Names(set(_top_level(tree)), bound, complete)


def _top_level(node: ast.AST) -> Iterator[str]:
    """Functions, classes and variables that are bound outside of functions and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child.name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif not isinstance(child, ast.Lambda):
            yield from _top_level(child)


# Which libraries may be imported before a worker is forked.
#
# A file may set variables, or anything else, before it imports torch. So only the imports that
# stand at its very beginning count: up to the first statement that is none, and up to the first
# import of a module beside the file, which may do anything too. Importing these earlier changes
# nothing.


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
