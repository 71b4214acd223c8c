"""From a target to a workload, inside the worker."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import gc
import importlib
import importlib.abc
import importlib.util
import inspect
import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torchstone.records import ArmSpec, NotSupported, UsageError
from torchstone.workloads.suites.base import BuildSetting, Suite, known_suites, load_suite
from torchstone.workloads.target import Target, import_named, libraries_ahead, parse_target, suggest
from torchstone.workloads.workload import Inputs, Workload, normalise_inputs

# Nests: tensors and scalars inside tuples, lists, dicts and dataclasses.
#
# A long list of plain numbers is one leaf: a contract with a million entries helps nobody.


LONG_LIST = 32
_NUMBERS = frozenset({bool, int, float})


def is_number_list(value: Any) -> bool:
    """A list or tuple of plain numbers that is too long to be looked at one by one."""
    return (
        type(value) in (list, tuple) and len(value) > LONG_LIST and {*map(type, value)} <= _NUMBERS
    )


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """The named parts of a container, or None for a leaf."""
    if isinstance(value, Mapping):
        return [(f".{key}", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{key}", getattr(value, key)) for key in value._fields]
    if is_number_list(value):
        return None
    if isinstance(value, (tuple, list)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    return None


def walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, in order; `None` parts are left out."""
    children = _children(value)
    if children is None:
        if value is not None:
            yield path, value
        return
    for suffix, item in children:
        yield from walk(item, path + suffix)


def map_nest(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same nest with every leaf passed through `function`."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_nest(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_nest(item, function) for item in value)
    if isinstance(value, dict):
        return {key: map_nest(item, function) for key, item in value.items()}
    return value if value is None else function(value)


# Fresh inputs from a seed: same shapes, types and range of values, another arrangement.
#
# Rolling the example's own values keeps every property that does not depend on their order (token
# ids stay in the vocabulary, images in their range) and costs one copy. Sorted integers (offsets,
# positions) and booleans (masks) carry meaning in their order and stay as they are.


def seed_everything(seed: int) -> None:
    """Seed the generators of the libraries that are loaded."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)


@contextmanager
def seeded_imports(seed: int) -> Iterator[None]:
    """Data made while a module is imported are the same in every process: what is loaded is seeded
    now, and what the module loads itself as soon as it is there."""
    seed_everything(seed)
    finder = _SeedingFinder(seed)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _SeedingFinder(importlib.abc.MetaPathFinder):
    """Finds nothing by itself; seeds libraries whose generators start from the system's entropy."""

    def __init__(self, seed: int) -> None:
        self._seeds: dict[str, Callable[[Any], object]] = {
            "torch": lambda torch: torch.manual_seed(seed),
            "numpy.random": lambda numpy_random: numpy_random.seed(seed % 2**32),
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the next finders say, told to seed the module once it has run."""
        seed = self._seeds.pop(name, None)
        spec = importlib.util.find_spec(name) if seed is not None else None
        if seed is None or spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_seed(module: ModuleType) -> None:
            execute(module)
            with contextlib.suppress(Exception):  # a stand-in of that name need not have one
                seed(module)

        with contextlib.suppress(AttributeError):  # a loader without room for it seeds nothing
            loader.exec_module = execute_and_seed
        return spec


def draw(workload: Workload, seed: int) -> Inputs:
    """The inputs that belong to `seed`: equal seeds, equal values."""
    if callable(workload.inputs):
        seed_everything(seed)
        return normalise_inputs(workload.inputs(seed))
    example = normalise_inputs(workload.inputs)
    chance = random.Random(seed)
    return Inputs(
        map_nest(example.args, lambda leaf: _fresh(leaf, chance)),
        map_nest(dict(example.kwargs), lambda leaf: _fresh(leaf, chance)),
    )


def _fresh(leaf: Any, chance: random.Random) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return _rolled_tensor(torch, leaf, chance)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(leaf, numpy.ndarray):
        return _rolled_array(numpy, leaf, chance)
    return leaf


def _rolled_tensor(torch: Any, leaf: Any, chance: random.Random) -> Any:
    with torch.no_grad():
        shift = chance.randrange(1, leaf.numel()) if leaf.numel() > 1 else 0
        ordered = leaf.dtype == torch.bool or (
            not leaf.is_floating_point()
            and not leaf.is_complex()
            and leaf.numel() > 1
            and bool((leaf.flatten().diff() >= 0).all())
        )
        fresh = leaf.detach().clone()  # keeps the strides, except of every second column and such
        if leaf.layout == torch.strided and _has_gaps(leaf.shape, leaf.stride()):
            like = {"dtype": leaf.dtype, "device": leaf.device}
            fresh = torch.empty_strided(leaf.shape, leaf.stride(), **like).copy_(fresh)
        if shift and not ordered:
            fresh.copy_(leaf.detach().roll(shift).reshape(leaf.shape))
    return fresh.requires_grad_(leaf.requires_grad) if leaf.requires_grad else fresh


def _rolled_array(numpy: Any, leaf: Any, chance: random.Random) -> Any:
    fresh = leaf.copy(order="K")
    if leaf.size > 1 and leaf.dtype.kind in "iufc":
        shift = chance.randrange(1, leaf.size)
        if leaf.dtype.kind not in "iu" or not bool((numpy.diff(leaf.ravel()) >= 0).all()):
            fresh[...] = numpy.roll(leaf, shift)
    widths = [stride // leaf.itemsize for stride in leaf.strides] if leaf.itemsize else []
    if leaf.dtype.hasobject or not _has_gaps(leaf.shape, widths):
        return fresh
    memory = numpy.zeros(_reach(leaf.shape, widths) + 1, leaf.dtype)
    spread = numpy.ndarray(leaf.shape, leaf.dtype, memory, strides=leaf.strides)
    spread[...] = fresh
    return spread


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """From the first element to the last, in elements."""
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _has_gaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """No element lies where another does, and there is room between some of them."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride <= reach:
            return False
        reach += (size - 1) * stride
    return 0 < math.prod(shape) < reach + 1


FORMS = "a Workload or (callable, inputs)"


class TargetError(UsageError):
    """The target exists but cannot be used as one."""


def load_workload(arm: ArmSpec, phase: Callable[[str], None]) -> Workload:
    """Import the target and call its factory; `phase` is told where we are, for the evidence."""
    target, seed = parse_target(arm.target), arm.seed
    phase("import")
    if target.kind == "suite":
        return _build_model(target, arm, phase)
    with seeded_imports(seed):
        module = _import_file(target) if target.kind == "file" else _import_module(target)
    made = _find(module, target)
    phase("build")
    seed_everything(seed)
    if target.direct:
        if not callable(made):
            raise TargetError(f"{target.text} is not a function but {kind_of(made)}.")
        return Workload(partial(made, **_parameters(made, target, arm)) if arm.params else made)
    if isinstance(made, Workload):
        return made
    if not callable(made) or _is_module(made):
        raise TargetError(
            f"{target.text} is {kind_of(made)}, not a factory.",
            f"Write a function without required arguments that returns {FORMS}.",
        )
    given = _parameters(made, target, arm)
    return _as_workload(_call_factory(made, target, seed, given), target)


def _parameters(made: Callable[..., Any], target: Target, arm: ArmSpec) -> dict[str, Any]:
    """The arm's arguments for it: numbers and other literals as such, else text."""
    given = {name: _literal(value) for name, value in arm.params}
    try:
        known = inspect.signature(made).parameters
    except (TypeError, ValueError):
        return given
    takes_all = any(one.kind is one.VAR_KEYWORD for one in known.values())
    strange = [name for name in given if name not in known]
    if strange and not takes_all:
        has = f"It has {', '.join(known)}." if known else f"Write def {target.name}({strange[0]}=8)"
        raise TargetError(f"{target.text} has no parameter {strange[0]!r}.", has)
    return given


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def load_function(name: str) -> Callable[..., Any]:
    """A function of the user's by its name, `file.py:fn` or `pkg.mod:fn`."""
    target = parse_target(name)
    module = _import_file(target) if target.kind == "file" else _import_module(target)
    found: Callable[..., Any] = _find(module, target)
    if not callable(found):
        raise TargetError(f"{name} is {kind_of(found)}, not a function.")
    return found


def import_libraries(arm: ArmSpec) -> None:
    """What building the arm would import before any code of its own runs."""
    if is_suite_model(arm):
        target = parse_target(arm.target)
        _import_library(load_suite(target.place), target.name)
    else:
        import_named(libraries_ahead(arm))


def _import_library(suite: Suite, model: str) -> None:
    """Without looking for rings of objects, which takes a tenth of the time and finds none. What
    was made counts as old afterwards, as it would have."""
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


def _call_factory(
    factory: Callable[..., Any], target: Target, seed: int, given: dict[str, Any]
) -> Any:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return factory(**given)
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and p.name not in given
    ]
    if needed == ["seed"]:
        return factory(seed=seed, **given)
    if needed:
        raise TargetError(
            f"{target.text} needs arguments ({', '.join(needed)}), so it cannot be a factory.",
            f"Write a function without required arguments that returns {FORMS}, or give them with "
            f"--sweep {needed[0]}=8.",
        )
    return factory(**given)


def _as_workload(made: Any, target: Target) -> Workload:
    if isinstance(made, Workload):
        workload = made
    elif isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        workload = Workload(*made)
    else:
        pair = isinstance(made, tuple) and len(made) == 2
        what = f"a pair whose first item, {kind_of(made[0])}, cannot be called" if pair else ""
        raise TargetError(
            f"{target.text} returned {what or kind_of(made)}; expected {FORMS}.",
            _how_to_name(made, target),
        )
    if not callable(workload.call):
        raise TargetError(f"{target.text}: the workload's call is {kind_of(workload.call)}.")
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


def kind_of(value: Any) -> str:
    """`a dict`, `an int`, `None`."""
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return "None" if value is None else f"{article} {name}"


# A small piece of work that needs nothing installed, to learn what this machine can tell apart.
#
# About 2 ms of arithmetic on small integers: long against a timer, short against the bursts of a
# noisy neighbour, and small enough to stay in the nearest cache.


ROUNDS = 30_000
_MULTIPLIER, _INCREMENT, _MODULUS = 1_103_515_245, 12_345, 1 << 31


def run() -> int:
    """Always the same numbers, one after the other."""
    value = 1
    for _ in range(ROUNDS):
        value = (_MULTIPLIER * value + _INCREMENT) % _MODULUS
    return value


# Inputs of several shapes, for arms that are measured under changing ones.

LEAST_BATCH = 2
"""Dynamo compiles 0 and 1 as constants, so a batch that varies begins above them."""


def draw_at(workload: Workload, seed: int, shape: int) -> Inputs:
    """The inputs that belong to `seed`, at shape 0 (warm-up and base), 1, 2, …"""
    if workload.at_shape is not None:
        if shape == 0:
            return draw(workload, seed)
        seed_everything(seed)
        return normalise_inputs(workload.at_shape(seed, shape))
    drawn = draw(workload, seed)
    batch = _batch_of(drawn)
    size = _size(batch, shape)
    made = _with_batch(drawn, batch, size)
    if _batch_of(made) != size:  # a container of the user's own, which only `walk` looks into
        raise _cannot("tensors inside an object that is no tuple, list or dict")
    return made


def describe_shapes(workload: Workload, seed: int, count: int) -> str:
    """What is varied, for the contract; refuses what will not work when it comes to timing."""
    if workload.at_shape is None:
        batch = _batch_of(draw(workload, seed))
        draw_at(workload, seed, count)
        return "batch " + ", ".join(str(_size(batch, shape)) for shape in range(1, count + 1))
    seen: dict[tuple[tuple[int, ...], ...], int] = {}
    for shape in range(count + 1):
        found = tuple(
            tuple(int(n) for n in leaf.shape) for leaf in _arrays(draw_at(workload, seed, shape))
        )
        other = seen.setdefault(found, shape)
        if other != shape:
            raise UsageError(
                f"The workload's at_shape gives the same shapes for {other} and {shape}.",
                "Let it return inputs of another shape for every number from 0 (its inputs) on.",
            )
    return f"{count} of the workload's own"


def _size(batch: int, shape: int) -> int:
    return max(batch, LEAST_BATCH) + shape


def _batch_of(inputs: Inputs) -> int:
    """The first dimension that all tensors and arrays share; 0-d ones have no say."""
    sizes = {int(leaf.shape[0]) for leaf in _arrays(inputs) if len(leaf.shape)}
    if not sizes:
        raise _cannot("no tensor or array among them")
    if len(sizes) > 1:
        raise _cannot(f"first dimensions of {', '.join(map(str, sorted(sizes)))}")
    if sizes == {0}:
        raise _cannot("an empty batch")
    return sizes.pop()


def _cannot(reason: str) -> NotSupported:
    return NotSupported(
        f"the input shapes cannot be varied ({reason}); give the Workload an at_shape"
    )


def _arrays(inputs: Inputs) -> list[Any]:
    return [leaf for _, leaf in walk((inputs.args, inputs.kwargs), "") if _library(leaf)]


def _library(leaf: Any) -> str:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(leaf, getattr(torch, "Tensor", ())):
        return "torch"
    return "numpy" if numpy is not None and isinstance(leaf, numpy.ndarray) else ""


def _with_batch(inputs: Inputs, batch: int, size: int) -> Inputs:
    if size == batch:
        return inputs
    whole, rest = divmod(size, batch)

    def extend(leaf: Any) -> Any:
        library = _library(leaf)
        if not library or not len(leaf.shape):
            return leaf
        module = sys.modules[library]
        if library == "numpy":
            return module.concatenate([leaf] * whole + [leaf[:rest]] * bool(rest))
        rows = leaf.detach()
        longer = module.cat([rows] * whole + [rows[:rest]] * bool(rest))  # keeps channels_last
        return longer.requires_grad_() if leaf.requires_grad else longer

    return Inputs(map_nest(inputs.args, extend), map_nest(dict(inputs.kwargs), extend))
