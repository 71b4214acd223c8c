"""What the suites of image classifiers share: images, a loss on classes, and what is missing."""

from __future__ import annotations

import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import machinery, metadata
from importlib.util import find_spec
from typing import Any

from torchstone.records import NotSupported
from torchstone.workloads.suites.base import BuildSetting
from torchstone.workloads.workload import Workload

# Libraries that are installed but do not fit together, put right where that is harmless.
#
# torchvision's compiled operators are built for one torch. Where they do not load (a CUDA build
# beside a CPU torch, say), torchvision keeps quiet about it and then dies at import for lack of the
# *names* of two of its operators, and takes down whatever imports it: timm, and every model of
# transformers. Classification models use neither operator, so declaring the names is enough.


OPERATORS = ("nms", "qnms")
"""What torchvision registers fake kernels for even when its operators did not load."""

SCHEMA = "{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def repair_torchvision() -> str:
    """Make torchvision importable here; call it before the first import of torchvision.

    Says in a sentence what was done, for a workload's notes; empty where nothing was needed, where
    torchvision is not installed, or where it was imported before. A torchvision whose operators
    load is left as it is. Equal answers however often it is called.
    """
    folder = package_folder("torchvision")
    return _repair(folder) if folder else ""


def package_folder(name: str) -> str:
    """Where a package is installed, found without importing it; empty where it is not."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module that somebody put in its place
        return ""
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return places[0] if places else ""


@cache
def _repair(folder: str) -> str:
    if "torchvision" in sys.modules:
        return ""
    try:
        import torch
    except ImportError:
        return ""
    failure = _load_failure(torch, folder)
    if not failure:
        return ""
    missing = [name for name in OPERATORS if not hasattr(torch.ops.torchvision, name)]
    if not missing:
        return ""
    library = _library(torch)
    for name in missing:
        library.define(SCHEMA.format(name=name))
    names = " and ".join(f"torchvision::{name}" for name in missing)
    return (
        f"torchvision {version_of('torchvision')} has compiled operators that do not load with "
        f"torch {torch.__version__} ({failure}); {names} were declared without kernels so that it "
        "can be imported"
    )


def _load_failure(torch: Any, folder: str) -> str:
    """Why the compiled operators do not load, or empty where they do. What loads stays loaded."""
    files = _extension_files(folder)
    failures = [] if files else ["they are not installed"]
    for path in files:
        try:
            torch.ops.load_library(path)
        except (ImportError, OSError) as error:
            reason = str(error.__cause__ or error).replace(folder + os.sep, "")
            failures.append(" ".join(reason.split()) or type(error).__name__)
    return failures[0] if failures else ""


def _extension_files(folder: str) -> list[str]:
    """`_C.so`, and from 0.29 on `_C_stable.so`, where the operators move one after another."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    endings = tuple(machinery.EXTENSION_SUFFIXES)
    return [os.path.join(folder, n) for n in names if n.startswith("_C") and n.endswith(endings)]


@cache
def _library(torch: Any) -> Any:
    """The declarations live as long as this object does, so it is kept."""
    return torch.library.Library("torchvision", "DEF")


def version_of(package: str) -> str:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(version unknown)"


# Dropout, drop-path and layer-drop set to 0.
#
# Two processes, or eager and compiled code, never draw the same random masks, so a model that drops
# anything can not be compared with itself. Configurations come first, because some models read a
# probability once, at construction; what is left in the modules is found afterwards.


MARK = "drop"
"""`dropout`, `hidden_dropout_prob`, `resid_pdrop`, `layerdrop`, `drop_path_rate`, `drop_prob`, …"""
NAMED_P = ("Drop", "StochasticDepth")
"""Modules with such names keep their probability in `p`."""


def zero_config(config: Any) -> tuple[str, ...]:
    """Set every drop probability of a configuration to 0, nested ones too; the names of those. None
    stays: it means that another field of the configuration counts."""
    zeroed = []
    for path, owner, name in _probabilities(config, ""):
        setattr(owner, name, 0.0)
        zeroed.append(path)
    return tuple(sorted(zeroed))


def zero_modules(model: Any) -> tuple[str, ...]:
    """Set what still drops in a model that is built to 0; the names of those."""
    zeroed = []
    for path, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if not _drops(value):
                continue
            if MARK in name.lower() or (name == "p" and _named_for_it(module)):
                setattr(module, name, 0.0)
                zeroed.append(f"{path}.{name}" if path else name)
    return tuple(sorted(zeroed))


def dropout_notes(in_config: tuple[str, ...], in_modules: tuple[str, ...]) -> tuple[str, ...]:
    """What was set to 0, for the contract."""
    notes = [
        f"dropout set to 0 before construction: {', '.join(in_config)}"
        if in_config
        else "no dropout in the configuration"
    ]
    if in_modules:
        notes.append(f"dropout set to 0 after construction: {', '.join(in_modules)}")
    return tuple(notes)


def _probabilities(config: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    for name, value in list(vars(config).items()):
        if MARK in name.lower() and _drops(value):
            yield prefix + name, config, name
        elif hasattr(value, "to_dict") and hasattr(value, "__dict__"):
            yield from _probabilities(value, f"{prefix}{name}.")


def _drops(value: Any) -> bool:
    """A probability above 0: not a switch, and not a count such as a number of tokens."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def _named_for_it(module: Any) -> bool:
    return any(word in type(module).__name__ for word in NAMED_P)


# Models with random weights whose answer depends on what they compute.
#
# Libraries build models that are ready to be trained, not to be checked: many start their last
# layer, or the last scale of each residual branch, at 0 or nearly, so that the answer hides all
# that came before; and batch normalisation in inference divides by 1 until training has told it
# better, so that values shrink (to 1e-14 in some networks, on the way to numbers that a processor
# is slow at) or grow from layer to layer. A wrong answer would then pass any check. Both are put
# right here, by values that are the same on every machine.


ASLEEP = 1e-3
"""A weight none of whose values is larger hides what it multiplies; libraries start such scales at
0, 1e-6, 1e-5 or 1e-4."""
AWAKE = 0.2
"""What such a scale is set to: enough to show, and low enough that fifty residual branches one
after another do not drown the first."""
SPREAD = 0.02
"""Of the values drawn for a matrix, as vision transformers draw theirs."""
MULTIPLIERS = ("weight", "gamma", "gain", "scale")
"""Names of what multiplies. What is added (biases, position embeddings) may well be 0."""
NAMES_SHOWN = 3


def wake_weights(model: Any) -> tuple[str, ...]:
    """Give weights that start at nothing a value; the names of those. Draws from torch's seed."""
    import torch

    woken = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not _multiplies(name) or not parameter.numel():
                continue
            if float(parameter.abs().max()) > ASLEEP:
                continue
            if parameter.numel() == max(parameter.shape, default=1):
                parameter.fill_(AWAKE)
            else:
                parameter.normal_(std=SPREAD)
            woken.append(name)
    return tuple(woken)


def settle_norms(model: Any, images: Any) -> int:
    """Let each batch normalisation expect what it is given; how many there are. One variance for a
    layer, rounded to a power of two: the measured one differs in its last digits with the machine
    and the number of threads, and the weights must not."""
    import torch

    kind = torch.nn.modules.batchnorm._BatchNorm
    norms = [m for m in model.modules() if isinstance(m, kind) and m.running_var is not None]
    if not norms:
        return 0
    hooks = [norm.register_forward_pre_hook(_expect) for norm in norms]
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(images)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return len(norms)


def alive_notes(woken: tuple[str, ...], settled: int) -> tuple[str, ...]:
    """What was changed, for the contract."""
    notes = []
    if woken:
        rest = len(woken) - NAMES_SHOWN
        names = ", ".join(woken[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
        notes.append(
            f"weights that start at 0 or nearly were set to {AWAKE:g}, or drawn where they are "
            f"matrices, so that the answer shows what they multiply: {names}"
        )
    if settled:
        notes.append(
            f"the running variances of {settled} batch normalisations were set to the power of two "
            "nearest to what random images give, so that values neither vanish nor grow in "
            "inference"
        )
    return tuple(notes)


def _multiplies(name: str) -> bool:
    return any(word in name.rpartition(".")[2] for word in MULTIPLIERS)


def _expect(norm: Any, inputs: tuple[Any, ...]) -> None:
    power = float(inputs[0].double().square().mean())
    if power > 0 and math.isfinite(power):
        norm.running_var.fill_(2.0 ** round(math.log2(power)))


REMEDIES = {"torch": 'pip install "torchstone[torch]"'}
REMEDY = 'pip install "torchstone[suites]"'

SMALL_BATCH = 2
"""Not 1, which compilers treat as a special case."""

AUXILIARY_WEIGHT = 0.4
"""Of the classifiers half-way up, as in the training of Inception v3 (torchvision's references)."""


def missing_library(*names: str) -> str:
    """Which of the packages is not installed and what to do; nothing is imported."""
    for name in names:
        if not package_folder(name):
            return f"{name} is not installed: {REMEDIES.get(name, REMEDY)}"
    return ""


def import_vision(name: str, *needs: str) -> Any:
    """Import a library that stands on torchvision, or raise `NotSupported` with the reason."""
    if reason := missing_library("torch", *needs, name):
        raise NotSupported(reason)
    repair_torchvision()
    return import_working(name, name)


def import_working(module: str, library: str) -> Any:
    """Import a module of a library, or raise `NotSupported` where the installation is broken."""
    try:
        with no_warnings():
            return importlib.import_module(module)
    except Exception as error:  # whatever a broken installation may raise
        said = [type(error).__name__, *str(error).strip().splitlines()[:1]]
        raise NotSupported(f"{library} cannot be imported: {': '.join(said)}") from error


@contextmanager
def no_warnings() -> Iterator[None]:
    """Libraries warn of what nobody here can change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def vision_workload(
    model: Any,
    setting: BuildSetting,
    batch: int,
    image: int,
    zeroed: tuple[str, ...],
    changes: Mapping[str, Any],
) -> Workload:
    """A classifier with its images and its loss; the notes say all that was changed in it."""
    changed = "".join(f", {name} {_plain(value)}" for name, value in changes.items())
    size = f"{setting.scale} scale: {batch} images of {image} x {image}{changed}"
    dropped = dropout_notes(zeroed, zero_modules(model))
    woken = wake_weights(model)
    settled = settle_norms(model, make_images(SMALL_BATCH, image)(setting.seed))
    repaired = repair_torchvision()
    notes = (size, *dropped, *alive_notes(woken, settled), *((repaired,) if repaired else ()))
    loss = class_loss(setting.seed)
    return Workload(model, make_images(batch, image), loss=loss, notes=notes)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def make_images(batch: int, image: int) -> Callable[[int], Any]:
    """A function from a seed to a batch of images: random bytes, brought to mean 0 and spread 1."""

    def images(seed: int) -> Any:
        import torch

        chance = torch.Generator().manual_seed(seed)
        shape = (batch, 3, image, image)
        bytes_ = torch.randint(256, shape, generator=chance, dtype=torch.float32)
        return (bytes_ - bytes_.mean()) / bytes_.std()

    return images


def class_loss(seed: int) -> Callable[[Any], Any]:
    """Cross entropy against random classes that depend on the seed and the output's shape alone."""

    @cache
    def classes(shape: tuple[int, int], device: Any) -> Any:
        import torch

        chance = torch.Generator().manual_seed(seed)
        return torch.randint(shape[1], (shape[0],), generator=chance).to(device)

    def one(scores: Any) -> Any:
        import torch

        scores = scores.float() if scores.element_size() < 4 else scores
        wanted = classes(tuple(scores.shape), scores.device)
        return torch.nn.functional.cross_entropy(scores, wanted)

    def loss(output: Any) -> Any:
        if not isinstance(output, tuple):
            return one(output)
        first, *others = (part for part in output if part is not None)
        return sum((AUXILIARY_WEIGHT * one(part) for part in others), one(first))

    return loss
