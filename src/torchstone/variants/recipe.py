"""`recipe:PATH`: a model as the functions of a recipe file leave it.

A recipe is what `torchstone tune` hands out. Measuring it means measuring the file: nothing of the
arms that were tuned is used.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from torchstone.records import ArmSpec, NotSupported, UsageError
from torchstone.variants.base import Applied
from torchstone.variants.techniques.batching import larger_batch
from torchstone.workloads import Inputs, Workload

PREFIX = "recipe:"
LARGEST = 1_000_000
"""Bytes of a recipe that is read: one of ours has a few thousand."""


def is_recipe(text: str) -> bool:
    """Whether a variant's name means a recipe file."""
    return text.startswith(PREFIX)


def read_constants(path: str) -> dict[str, Any]:
    """`ENVIRONMENT`, `CHANGES` and the other plain values of a recipe, without running it."""
    try:
        if os.path.getsize(path) > LARGEST:
            raise UsageError(f"{path} is too large for a recipe.")
        with open(path, encoding="utf-8") as file:
            body = ast.parse(file.read(), path).body
    except OSError as error:
        raise UsageError(f"The recipe {path} cannot be read: {error.strerror}.") from None
    except (SyntaxError, ValueError):
        raise UsageError(f"{path} is not valid Python, so it is no recipe.") from None
    found: dict[str, Any] = {}
    names = {one.name for one in body if isinstance(one, ast.FunctionDef)}
    for one in body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            try:
                found[one.targets[0].id] = ast.literal_eval(one.value)
            except (ValueError, TypeError, SyntaxError, RecursionError):
                continue
    if "apply" not in names:
        raise UsageError(f"{path} has no function `apply`.", "Name a file of `torchstone tune`.")
    return found


@dataclass(frozen=True)
class Recipe:
    """A variant that a file describes."""

    path: str
    changes: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()
    batch_times: int = 1
    """The batch that it is made for, beside the target's own."""
    summary: str = "a recipe of `torchstone tune`"

    @property
    def name(self) -> str:
        """As written."""
        return f"{PREFIX}{self.path}"

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Recipe:
        """Recipes have none."""
        if modifiers:
            raise UsageError(f"A recipe has no modifier {modifiers[0]!r}.")
        return self

    def unsupported(self, arm: ArmSpec) -> str | None:
        """The file says so by itself when it is applied."""
        return None

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """`apply` of the file."""
        try:
            made = _module(self.path).apply(call)
            return Applied(made if self.batch_times == 1 else larger_batch(made, self.batch_times))
        except NotImplementedError as error:
            raise NotSupported(str(error)) from error


def find_recipe(text: str) -> Recipe:
    """The variant of a name that means a recipe file."""
    path = os.path.abspath(os.path.expanduser(text.removeprefix(PREFIX)))
    constants = read_constants(path)
    changes = frozenset(str(one) for one in constants.get("CHANGES", ()))
    compiles = constants.get("COMPILES", False)
    modules = ("torch._dynamo", "torch._inductor.compile_fx") if compiles else ()
    times = constants.get("BATCH_TIMES", 1)
    return Recipe(path, changes, modules, times if isinstance(times, int) else 1)


def recipe_techniques(text: str) -> tuple[str, ...]:
    """The techniques that a recipe says it applies."""
    path = os.path.abspath(os.path.expanduser(text.removeprefix(PREFIX)))
    return tuple(str(one) for one in read_constants(path).get("TECHNIQUES", ()))


def prepare_process(text: str) -> None:
    """What the recipe does before anything is built."""
    _module(find_recipe(text).path).prepare()


def with_recipe(workload: Workload, text: str) -> Workload:
    """The workload with the optimizer that the recipe makes of its own."""
    from torchstone.variants.techniques.base import plain_sgd

    module, make = _module(find_recipe(text).path), workload.optimizer or plain_sgd

    def optimizer(parameters: Any) -> Any:
        return module.apply_optimizer(make(list(parameters)))

    return (
        replace(workload, optimizer=optimizer) if hasattr(module, "apply_optimizer") else workload
    )


_LOADED: dict[str, ModuleType] = {}


def _module(path: str) -> ModuleType:
    """The file, run once in a process."""
    if path not in _LOADED:
        spec = importlib.util.spec_from_file_location("torchstone_recipe", path)
        if spec is None or spec.loader is None:
            raise UsageError(f"The recipe {path} cannot be imported.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _LOADED[path] = module
    return _LOADED[path]
