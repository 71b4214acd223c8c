"""What the suites of image classifiers share: images, a loss on classes, and what is missing."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from torchstone.records import NotSupported
from torchstone.workloads.suites.alive import alive_notes, settle_norms, wake_weights
from torchstone.workloads.suites.base import BuildSetting
from torchstone.workloads.suites.compat import package_folder, repair_torchvision
from torchstone.workloads.suites.dropout import dropout_notes, zero_modules
from torchstone.workloads.workload import Workload

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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception as error:  # whatever a broken installation may raise
        said = str(error).strip().splitlines() or [""]
        reason = f"{name} cannot be imported: {type(error).__name__}: {said[0]}"
        raise NotSupported(reason) from error


def vision_workload(
    model: Any,
    setting: BuildSetting,
    batch: int,
    image: int,
    zeroed: tuple[str, ...],
    notes: tuple[str, ...],
) -> Workload:
    """A classifier with its images and its loss; the notes say all that was changed in it."""
    dropped = dropout_notes(zeroed, zero_modules(model))
    woken = wake_weights(model)
    settled = settle_norms(model, make_images(SMALL_BATCH, image)(setting.seed))
    repaired = repair_torchvision()
    changed = (*dropped, *alive_notes(woken, settled), *((repaired,) if repaired else ()))
    return Workload(
        model,
        make_images(batch, image),
        loss=class_loss(setting.seed),
        notes=(*notes, *changed),
    )


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


def small_note(image: int, changes: Mapping[str, Any]) -> str:
    """What the small scale changed, in a sentence."""
    changed = "".join(f", {name} {_plain(value)}" for name, value in changes.items())
    return f"small scale: {SMALL_BATCH} images of {image} x {image}{changed}"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
