"""User suites: a TOML or Python file that lists targets.

A Python file is read, not run: planning happens in the conductor's process, where foreign code has
no business. So its `NAME` and `MODELS` are literals.
"""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.records import MODES, UsageError
from torchstone.records.plugins import did_you_mean
from torchstone.workloads.load import kind_of
from torchstone.workloads.suites.base import (
    TIERS,
    BuildSetting,
    ModelInfo,
    known_suites,
    load_suites,
)
from torchstone.workloads.target import check_target, from_home, near_files, parse_target
from torchstone.workloads.workload import Workload

MOST_BYTES = 1024 * 1024
MOST_MODELS = 10_000
MOST_LETTERS = 200
"""Far beyond what people write; a file past these is a mistake, and is refused before it costs."""

ENDINGS = (".toml", ".py")
FILE_KEYS = ("name", "model")
MODEL_KEYS = ("name", "target", "modes", "tier", "family")

_TOML_FORM = 'Write [[model]] tables, each with name = "…" and target = "path.py:make".'
_PYTHON_FORM = 'Write MODELS = {"name": "path.py:make", …} with nothing in it to be computed.'


@dataclass(frozen=True)
class FileSuite:
    """A suite from a file. Each model's `target` is an ordinary target, and loads like one."""

    name: str
    path: str
    listed: tuple[ModelInfo, ...]
    prefix: str = ""
    scales: tuple[str, ...] = ()

    def models(self) -> Sequence[ModelInfo]:
        """As the file lists them."""
        return self.listed

    def import_library(self, model: str = "") -> None:
        """Each target imports what it needs."""

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """Never asked for: the target is what is measured, without this suite."""
        raise UsageError(
            f"{model} of the suite {self.name} has no builder.", "Measure its target by its name."
        )


def is_suite_file(text: str) -> bool:
    """Whether a word on the command line of `run` means a file and not an installed suite."""
    return text.endswith(ENDINGS)


def read_suite_file(path: str) -> FileSuite:
    """The suite that the file lists; a `UsageError` that says what is wrong with it otherwise."""
    path = from_home(path)
    if not is_suite_file(path):
        raise UsageError(f"{path} is neither .toml nor .py.", "A suite file is one of the two.")
    text = _read(path)
    entries, name = _read_toml(text, path) if path.endswith(".toml") else _read_python(text, path)
    if not entries:
        form = _TOML_FORM if path.endswith(".toml") else _PYTHON_FORM
        raise UsageError(f"{path} lists no models.", form)
    if len(entries) > MOST_MODELS:
        raise UsageError(f"{path} lists {len(entries)} models; at most {MOST_MODELS} are read.")
    stem = os.path.splitext(os.path.basename(path))[0]
    name = _checked_name(stem if name is None else name, "the suite's name", path)
    _refuse_taken(name, path)
    folder = os.path.dirname(path)
    listed = tuple(_model(entry, i, path, folder) for i, entry in enumerate(entries, 1))
    _refuse_twice([model.name for model in listed], path)
    return FileSuite(name, path, listed)


def _read(path: str) -> str:
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder, not a suite file.", "Name a file in it.")
    if not os.path.exists(path):
        raise UsageError(f"There is no file {path}.", near_files(path, ENDINGS))
    if not os.path.isfile(path):  # a pipe would keep us waiting
        raise UsageError(f"{path} is not an ordinary file.")
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES // 1024} KiB.", "Split the suite.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file (not UTF-8).") from None


def _read_toml(text: str, path: str) -> tuple[list[Any], Any]:
    toml = toml_library(path)
    try:
        content = toml.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path} is not valid TOML: {reason}.") from None
    _refuse_unknown(content, FILE_KEYS, path)
    models = content.get("model", [])
    if not isinstance(models, list):
        raise UsageError(f"{path}: model is {kind_of(models)}, not a list of tables.", _TOML_FORM)
    return models, content.get("name")


def toml_library(path: str) -> Any:
    """In the standard library from Python 3.11 on."""
    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise UsageError(
        f"{path} cannot be read: this Python has no TOML reader (3.11 and newer have).",
        "Install tomli, or list the models in a Python file: MODELS = {…}.",
    )


def _read_python(text: str, path: str) -> tuple[list[Any], Any]:
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise UsageError(f"{path} is not valid Python{line}: {_said(error)}.") from None
    found = _assigned(tree)
    if "MODELS" not in found:
        raise UsageError(f"{path} has no MODELS, so it is not a suite file.", _PYTHON_FORM)
    node = found["MODELS"]
    if isinstance(node, ast.Dict):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        _refuse_twice([key for key in keys if isinstance(key, str)], path)
    models = _literal(node, "MODELS", path)
    name = _literal(found["NAME"], "NAME", path) if "NAME" in found else None
    if isinstance(models, dict):
        models = [_named(key, value, path) for key, value in models.items()]
    if not isinstance(models, (list, tuple)):
        raise UsageError(
            f"{path}: MODELS is {kind_of(models)}, not a dict or a list.", _PYTHON_FORM
        )
    return list(models), name


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """What the file's top level assigns to plain names; the last assignment holds."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = [target for target in node.targets if isinstance(target, ast.Name)]
            found.update({name.id: node.value for name in names})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
    return found


def _literal(node: ast.expr, name: str, path: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise UsageError(
            f"{path}: {name} (line {node.lineno}) is computed, and a suite file is read without "
            "running it.",
            "Write it out as a literal, or write the list to a TOML file.",
        ) from None


def _named(key: Any, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        if "name" in value:
            raise UsageError(f"{path}: {key!r} has its name twice.", "The key is the name.")
        return {"name": key, **value}
    return {"name": key, "target": value}


def _model(entry: Any, number: int, path: str, folder: str) -> ModelInfo:
    where = f"{path}, model {number}"
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} is {kind_of(entry)}.", "Give it a name and a target.")
    if isinstance(entry.get("name"), str):
        where = f"{path}, model {entry['name']!r}"
    _refuse_unknown(entry, MODEL_KEYS, where)
    for key in ("name", "target"):
        if key not in entry:
            raise UsageError(f"{where} has no {key}.", "Each model needs a name and a target.")
    name = _checked_name(entry["name"], "the name", where)
    tier = _chosen(entry.get("tier", TIERS[0]), TIERS, "tier", where)
    modes = _modes(entry.get("modes", list(MODES)), where)
    return ModelInfo(
        name=name,
        family=_text(entry.get("family", ""), "family", where),
        tier=tier,
        quick_modes=modes if tier == TIERS[0] and "modes" in entry else (),
        modes=modes,
        target=_target(_text(entry["target"], "target", where), where, folder),
    )


def _target(text: str, where: str, folder: str) -> str:
    """The target as it is typed from here: files are relative to the suite file's folder."""
    try:
        target = parse_target(text)
        if target.kind == "file" and folder:
            typed = text.rpartition(":")[0] or text
            text = os.path.normpath(os.path.join(folder, target.place)) + text[len(typed) :]
        check_target(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.remedy) from None
    return text


def _modes(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise UsageError(f"{where}: modes is not a list of modes.", f"Modes: {', '.join(MODES)}.")
    chosen = [_chosen(one, MODES, "mode", where) for one in value]
    return tuple(mode for mode in MODES if mode in chosen)


def _chosen(value: Any, known: Sequence[str], what: str, where: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise UsageError(
            f"{where}: there is no {what} {value!r}.", f"Choose from {', '.join(known)}."
        )
    return value


def _text(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: {what} is {kind_of(value)}, not text.")
    return value


def _checked_name(value: Any, what: str, where: str) -> str:
    name = _text(value, what, where)
    if not name or name != name.strip() or not name.isprintable() or len(name) > MOST_LETTERS:
        raise UsageError(
            f"{where}: {what} cannot be {name[:40]!r}.",
            f"Names are one line of at most {MOST_LETTERS} letters, without space at the ends.",
        )
    return name


def _refuse_taken(name: str, path: str) -> None:
    """Figures of two suites of one name would be taken for the same."""
    suites, _ = load_suites()
    taken = {*known_suites(), *(suite.name for suite in suites.values())}
    if name in taken:
        raise UsageError(f"{path}: there is a suite {name} already.", 'Give it another: name = "…"')


def _refuse_twice(names: Sequence[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{path} lists {name!r} twice.", "Names tell models apart.")
        seen.add(name)


def _refuse_unknown(entry: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            hint = did_you_mean(str(key), known)
            raise UsageError(
                f"{where}: there is no key {str(key)!r}.", f"{hint}Keys: {', '.join(known)}."
            )


def _said(error: BaseException) -> str:
    return getattr(error, "msg", "") or str(error) or type(error).__name__
