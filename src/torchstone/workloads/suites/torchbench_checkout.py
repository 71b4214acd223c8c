"""A checkout of pytorch/benchmark: where it is, what it lists, and what its models lack here.

Everything here reads files only. Importing even one of its models may take seconds, change global
state or download, so nothing is imported to make a list.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from torchstone.records import UsageError
from torchstone.workloads.suites.base import ModelInfo

VARIABLE = "TORCHSTONE_TORCHBENCH"
"""Where the checkout is: set by hand or by `--torchbench`; workers inherit it."""

PACKAGE = "torchbenchmark"
MODELS = os.path.join(PACKAGE, "models")
_FAMILIES = {
    "COMPUTER_VISION": "vision",
    "NLP": "text",
    "SPEECH": "audio",
    "RECOMMENDATION": "recommendation",
    "REINFORCEMENT_LEARNING": "reinforcement",
    "GNN": "graphs",
    "OTHER": "other",
}
"""Names of the task groups in the checkout, and ours."""

STANDARD = frozenset(
    {
        "BERT_pytorch",
        "dcgan",
        "demucs",
        "functorch_dp_cifar10",
        "hf_Bert",
        "lennard_jones",
        "maml",
        "nanogpt",
        "nvidia_deeprecommender",
        "phlippe_densenet",
        "phlippe_resnet",
        "pyhpc_equation_of_state",
        "pyhpc_isoneutral_mixing",
        "pyhpc_turbulent_kinetic_energy",
        "tts_angular",
    }
)
"""The standard tier: models that were seen to build without an install step or a download."""


@dataclass(frozen=True)
class Checkout:
    """A folder that holds `torchbenchmark/models`."""

    path: str

    @property
    def label(self) -> str:
        """Its own name, for notes that must not tell where a person keeps things."""
        return os.path.basename(self.path)

    def model_folder(self, model: str) -> str:
        """Where a model's package is."""
        return os.path.join(self.path, MODELS, model)

    def remedy(self, model: str, package: str) -> str:
        """How to get a package that a model needs."""
        if os.path.isfile(os.path.join(self.model_folder(model), "install.py")):
            return f"run python install.py in {MODELS}/{model} of the checkout"
        return f"install {package}"


def need_checkout() -> Checkout:
    """The user's checkout; a `UsageError` where none is named, or a wrong path."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        raise UsageError(
            "No checkout of pytorch/benchmark is named.",
            f"Give --torchbench PATH, or set {VARIABLE}.",
        )
    path = os.path.realpath(os.path.expanduser(given))
    if not os.path.isdir(os.path.join(path, MODELS)):
        where = "does not exist" if not os.path.isdir(path) else f"has no {MODELS}"
        raise UsageError(
            f"{given} is not a checkout of pytorch/benchmark: it {where}.",
            f"Give the folder that git cloned, by --torchbench or {VARIABLE}.",
        )
    return Checkout(path)


def list_models(checkout: Checkout) -> tuple[ModelInfo, ...]:
    """Every package under `torchbenchmark/models`, with what it lacks, by name."""
    return _list_models(checkout.path)


@cache
def _list_models(path: str) -> tuple[ModelInfo, ...]:
    checkout = Checkout(path)
    try:
        names = sorted(os.listdir(os.path.join(path, MODELS)))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    return tuple(
        _describe(checkout, name)
        for name in names
        if name.isidentifier()
        and os.path.isfile(os.path.join(checkout.model_folder(name), "__init__.py"))
    )


def _describe(checkout: Checkout, name: str) -> ModelInfo:
    front = os.path.join(checkout.model_folder(name), "__init__.py")
    tier = "standard" if name in STANDARD else "full"
    tree = _parse(front)
    if tree is None:
        return ModelInfo(name, tier=tier)  # importing it will say what is wrong, with the line
    missing = _missing_package(checkout, name, front, tree)
    reason = f"needs the package {missing}: {checkout.remedy(name, missing)}" if missing else ""
    return ModelInfo(name, family=_family(tree), tier=tier, missing=reason)


def _missing_package(checkout: Checkout, model: str, front: str, tree: ast.Module) -> str:
    """The first package that the model's file, or one it imports of the checkout, is without."""
    door = os.path.join(checkout.path, PACKAGE, "__init__.py")
    for path in dict.fromkeys((front, door, *_files_imported(checkout, front, tree))):
        for package in _packages(path):
            if not _is_there(package, checkout, os.path.dirname(path), model):
                return package
    return ""


def _parse(path: str) -> ast.Module | None:
    try:
        with open(path, encoding="utf-8") as file:
            return ast.parse(file.read(), path)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


@cache
def _packages(path: str) -> tuple[str, ...]:
    """Top-level packages that the file's own top level imports for certain.

    What is imported inside `try`, `if` or a function may never be needed; and where a file changes
    `sys.path`, its imports cannot be followed without running it.
    """
    tree = _parse(path)
    if tree is None or _changes_path(tree):
        return ()
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.append(node.module.split(".")[0])
    return tuple(dict.fromkeys(found))


def _is_there(package: str, checkout: Checkout, beside: str, model: str) -> bool:
    if package in sys.stdlib_module_names:
        return True
    for folder in (checkout.path, beside, checkout.model_folder(model)):
        place = os.path.join(folder, package)
        if os.path.isdir(place) or os.path.isfile(place + ".py"):
            return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return True  # something odd stands in its place; building will tell


def _changes_path(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "path"
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
        for node in ast.walk(tree)
    )


def _files_imported(checkout: Checkout, front: str, tree: ast.Module) -> Iterator[str]:
    """Files of the checkout that the top level imports, one step away."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            base = _base_folder(checkout, front, node)
            if base is not None:
                yield from _module_files(base)
                for alias in node.names:
                    yield from _module_files(os.path.join(base, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield from _module_files(os.path.join(checkout.path, *alias.name.split(".")))


def _base_folder(checkout: Checkout, front: str, node: ast.ImportFrom) -> str | None:
    """The path, without ending, of the module that `from … import` names, if it is of ours."""
    parts = node.module.split(".") if node.module else []
    if not node.level:
        return os.path.join(checkout.path, *parts) if parts[:1] == [PACKAGE] else None
    folder = os.path.dirname(front)
    for _ in range(node.level - 1):
        folder = os.path.dirname(folder)
    return os.path.join(folder, *parts)


def _module_files(base: str) -> Iterator[str]:
    for path in (base + ".py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            yield path


def _family(tree: ast.Module) -> str:
    """From the line `task = GROUP.NAME` of the class `Model`, where it is written so."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name != "Model":
            continue
        for line in node.body:
            if (
                isinstance(line, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == "task" for t in line.targets)
                and isinstance(line.value, ast.Attribute)
                and isinstance(line.value.value, ast.Name)
            ):
                return _FAMILIES.get(line.value.value.id, "")
    return ""
