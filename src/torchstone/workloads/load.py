"""From a target to a workload, inside the worker."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torchstone.records import ArmSpec, UsageError
from torchstone.workloads.ahead import import_named, libraries_ahead
from torchstone.workloads.draw import seed_everything
from torchstone.workloads.suites.base import BuildSetting, Suite
from torchstone.workloads.suites.registry import known_suites, load_suite
from torchstone.workloads.target import Target, parse_target, suggest
from torchstone.workloads.workload import Workload

FORMS = "a Workload or (callable, inputs)"


class TargetError(UsageError):
    """The target exists but cannot be used as one."""


def load_workload(arm: ArmSpec, phase: Callable[[str], None]) -> Workload:
    """Import the target and call its factory; `phase` is told where we are, for the evidence."""
    target, seed = parse_target(arm.target), arm.seed
    phase("import")
    if target.kind == "suite":
        return _build_model(target, arm, phase)
    module = _import_file(target) if target.kind == "file" else _import_module(target)
    made = _find(module, target)
    phase("build")
    seed_everything(seed)
    if target.direct:
        if not callable(made):
            raise TargetError(f"{target.text} is not a function but {_kind(made)}.")
        return Workload(made)
    if isinstance(made, Workload):
        return made
    if not callable(made) or _is_module(made):
        raise TargetError(
            f"{target.text} is {_kind(made)}, not a factory.",
            f"Write a function without required arguments that returns {FORMS}.",
        )
    return _as_workload(_call_factory(made, target, seed), target)


def import_libraries(arm: ArmSpec) -> None:
    """What building the arm would import before any code of its own runs."""
    if is_suite_model(arm):
        target = parse_target(arm.target)
        _import_library(load_suite(target.place), target.name)
    else:
        import_named(libraries_ahead(arm))


def _import_library(suite: Suite, model: str) -> None:
    """Without looking for rings of objects, which takes a tenth of the time and finds none.

    What was made counts as old afterwards, as it would have.
    """
    looking = gc.isenabled()
    gc.disable()
    try:
        suite.import_library(model)
    finally:
        gc.collect()
        if looking:
            gc.enable()


def is_suite_model(arm: ArmSpec) -> bool:
    """Whether the target is a model of a suite, by its name alone."""
    return bool(arm.target) and parse_target(arm.target).kind == "suite"


def _build_model(target: Target, arm: ArmSpec, phase: Callable[[str], None]) -> Workload:
    suite = load_suite(target.place)
    _import_library(suite, target.name)
    phase("build")
    seed_everything(arm.seed)
    setting = BuildSetting(target.scale or "full", arm.mode, arm.precision, arm.device, arm.seed)
    return _as_workload(suite.build(target.name, setting), target)


def _call_factory(factory: Callable[..., Any], target: Target, seed: int) -> Any:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return factory()
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed == ["seed"]:
        return factory(seed=seed)
    if needed:
        raise TargetError(
            f"{target.text} needs arguments ({', '.join(needed)}), so it cannot be a factory.",
            f"Write a function without required arguments that returns {FORMS}.",
        )
    return factory()


def _as_workload(made: Any, target: Target) -> Workload:
    if isinstance(made, Workload):
        workload = made
    elif isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        workload = Workload(*made)
    else:
        raise TargetError(
            f"{target.text} returned {_kind(made)}; expected {FORMS}.", _how_to_name(made, target)
        )
    if not callable(workload.call):
        raise TargetError(f"{target.text}: the workload's call is {_kind(workload.call)}.")
    return workload


def _how_to_name(made: Any, target: Target) -> str:
    if callable(made) and hasattr(made, "forward"):  # a module: without inputs it cannot be called
        return "Write a function that returns the module and its inputs, and name that one."
    return f"If {target.name} is the function to be timed itself, write {target.text}()."


def _import_file(target: Target) -> ModuleType:
    path = os.path.abspath(target.place)
    if not os.path.isfile(path):
        raise TargetError(f"There is no file {target.place}.")
    sys.path.insert(0, os.path.dirname(path))  # as Python does for a script
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{target.place} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def _import_module(target: Target) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(target.place)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if target.place == missing or target.place.startswith(missing + "."):
            names = ", ".join(sorted(known_suites()))
            known = f" Suites known here: {names}." if names else ""
            raise TargetError(
                f"There is no module {missing}.",
                f"Install it in the arm's interpreter, or name a file: path.py:make.{known}",
            ) from None
        raise


def _find(module: ModuleType, target: Target) -> Any:
    found: Any = module
    for part in target.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = {name for name in dir(found) if not name.startswith("_")}
            raise TargetError(
                f"{target.place} has no {target.name!r}.",
                suggest(target.name, names, target.place),
            ) from None
    return found


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _kind(value: Any) -> str:
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return "None" if value is None else f"{article} {name}"
