"""Variant names to variants, through entry points.

`recipe:PATH`: a model as the functions of a recipe file leave it.

A recipe is what `torchstone tune` hands out. Measuring it means measuring the file: nothing of the
arms that were tuned is used.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Any, cast

from torchstone.records import ArmSpec, NotSupported, UsageError
from torchstone.records.plugins import Registry, did_you_mean
from torchstone.variants.base import Applied, Variant
from torchstone.variants.compiled import Compiled
from torchstone.variants.techniques import TECHNIQUES, Technique
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


VARIANTS = Registry(
    "torchstone.variants",
    {
        "eager": "torchstone.variants.base:EAGER",
        "inductor": "torchstone.variants.compiled:INDUCTOR",
        "aot_eager": "torchstone.variants.compiled:AOT_EAGER",
        "cudagraphs": "torchstone.variants.compiled:CUDAGRAPHS",
        "jit-trace": "torchstone.variants.compiled:JIT_TRACE",
        "export": "torchstone.variants.compiled:EXPORT",
        "aoti": "torchstone.variants.compiled:AOTI",
    },
)
NOT_FOR_USERS = ("_TESTING_ONLY", "minifier_backend", "_crossref")
"""Endings of backends that torch keeps for itself: they can be named, and are not recommended."""


@cache
def known_variants() -> dict[str, metadata.EntryPoint]:
    """Installed variants by name."""
    return VARIANTS.by_name()


def resolve_variant(text: str) -> Variant:
    """The variant for `backend+modifier`; a name no plug-in offers is a torch.compile backend.

    A modifier that is a technique changes the workload; any other is the backend's own.
    """
    if is_recipe(text):
        return find_recipe(text)
    head, *modifiers = text.split("+")
    point = known_variants().get(head)
    variant = cast("Variant", point.load()) if point else Compiled(head)
    own = tuple(name for name in modifiers if not _is_technique(name))
    variant = variant.with_modifiers(own)
    techniques = techniques_of(text)
    return Technical(variant, techniques) if techniques else variant


def techniques_of(text: str) -> tuple[Technique, ...]:
    """The techniques among a variant's modifiers, each once, in the order given."""
    names = () if is_recipe(text) else dict.fromkeys(text.split("+")[1:])
    return tuple(TECHNIQUES[name] for name in names if _is_technique(name))


def _is_technique(name: str) -> bool:
    """Whether it is one that is written behind a variant."""
    return name in TECHNIQUES and TECHNIQUES[name].modifier


def before_loading(text: str) -> None:
    """What the techniques of that variant do before the target is imported."""
    if is_recipe(text):
        prepare_process(text)
    for technique in techniques_of(text):
        if technique.before is not None:
            technique.before()


def with_techniques(workload: Workload, text: str) -> Workload:
    """The workload as the techniques of that variant change it."""
    if is_recipe(text):
        return with_recipe(workload, text)
    for technique in techniques_of(text):
        if technique.apply is not None:
            workload = technique.apply(workload)
    return workload


@dataclass(frozen=True)
class Technical:
    """A variant of a workload that techniques have changed."""

    variant: Variant
    techniques: tuple[Technique, ...]

    @property
    def name(self) -> str:
        """As written: the variant's own name, then the techniques."""
        return "+".join((self.variant.name, *(one.name for one in self.techniques)))

    @property
    def changes(self) -> frozenset[str]:
        """What the variant or any of the techniques may change."""
        return self.variant.changes.union(*(one.changes for one in self.techniques))

    @property
    def modules(self) -> tuple[str, ...]:
        """The variant's."""
        return tuple(getattr(self.variant, "modules", ()))

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Variant:
        """The same techniques beside other modifiers."""
        return replace(self, variant=self.variant.with_modifiers(modifiers))

    def unsupported(self, arm: ArmSpec) -> str | None:
        """Why the variant cannot run this arm, or None."""
        return self.variant.unsupported(arm)

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """As the variant does."""
        return self.variant.apply(call, example, arm)


def uses_torch(text: str) -> bool:
    """Whether the variant, or a technique of it, means something for torch alone."""
    if is_recipe(text):
        names = recipe_techniques(text)
        return any(name not in TECHNIQUES or TECHNIQUES[name].needs_torch for name in names)
    return text.split("+")[0] != "eager" or any(one.needs_torch for one in techniques_of(text))


def check_variant(text: str, backends: Callable[[], Sequence[str]]) -> None:
    """Refuse an unknown name. `backends` lists torch's own; it is slow, so asked only if needed."""
    if is_recipe(text):
        find_recipe(text)
        return
    head = text.split("+")[0]
    known = sorted(known_variants())
    if head not in known:
        registered = backends()
        if head not in registered:
            usual = [name for name in registered if not name.endswith(NOT_FOR_USERS)]
            names = sorted({*known, *usual})
            hint = did_you_mean(head, names, most=2, cutoff=0.4)
            raise UsageError(
                f"There is no variant {head!r}.", f"{hint}Known here: {', '.join(names)}."
            )
    resolve_variant(text)
