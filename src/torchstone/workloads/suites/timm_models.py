"""The timm suite: image models of timm with random weights."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchstone.records import SCALES, NotSupported, UsageError
from torchstone.workloads.draw import seed_everything
from torchstone.workloads.suites.base import BuildSetting, ModelInfo, check_scale, tier_of
from torchstone.workloads.suites.compat import package_folder
from torchstone.workloads.suites.timm_table import (
    PATCH_IMAGE,
    QUICK,
    STANDARD,
    TIMM_MODELS,
    TimmModel,
)
from torchstone.workloads.suites.vision import (
    SMALL_BATCH,
    import_vision,
    missing_library,
    small_note,
    vision_workload,
)
from torchstone.workloads.workload import Workload

DROPS = ("drop_rate", "drop_path_rate")
"""Arguments that timm's models share and that some set above 0; a model may lack the second. What
else drops in a model is found after construction."""

_REGISTERED = re.compile(r"^@register_model\s*\ndef (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class TimmSuite:
    """Satisfies `Suite`. Beside the listed models it builds any other that timm knows."""

    name: str = "timm"
    prefix: str = "timm"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """The dashboard's models and some well-known ones; nothing is imported."""
        missing = missing_library("torch", "torchvision", "timm")
        return tuple(
            ModelInfo(
                name=model.name,
                family="vision",
                tier=tier_of(model.name, QUICK, STANDARD),
                quick_modes=QUICK.get(model.name, ()),
                missing=missing,
            )
            for model in TIMM_MODELS
        )

    def accepts(self, model: str) -> bool:
        """Whether `build` knows the model, listed or not, as far as timm's source tells."""
        listed = any(one.name == model for one in TIMM_MODELS)
        return listed or model.partition(".")[0] in _registered(package_folder("timm"))

    def import_library(self, model: str = "") -> None:
        """Import timm, and torchvision, on which it stands."""
        import_vision("timm", "torchvision")

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model in 32-bit floats on the CPU, with random weights, and its images."""
        check_scale(self, setting.scale)
        timm = import_vision("timm", "torchvision")
        entry = _find(timm, model)
        small = setting.scale == "small"
        seed_everything(setting.seed)
        made, zeroed = _create(timm, entry, entry.small if small else {})
        if small:
            batch, image = SMALL_BATCH, entry.image
            changes = {n.replace("_", " "): v for n, v in entry.small.items() if n != "img_size"}
            note = small_note(image, changes)
        else:
            batch, image = entry.batch, _own_image(made, setting.mode)
            note = f"full scale: {batch} images of {image} x {image}"
        return vision_workload(made, setting, batch, image, zeroed, (note,))


TIMM = TimmSuite()


def _find(timm: Any, name: str) -> TimmModel:
    """The listed model, or one made up for a name that timm knows."""
    for model in TIMM_MODELS:
        if model.name == name:
            return model
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        raise UsageError(
            f"timm has no model {name!r}.", "`torchstone list models timm` lists some."
        )
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if config is not None and config.fixed_input_size:
        return TimmModel(name, image=PATCH_IMAGE, small={"img_size": PATCH_IMAGE})
    return TimmModel(name)


def _create(timm: Any, model: TimmModel, small: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """The model, and the names of the arguments that were set to 0.

    A constructor refuses the names that it does not know, one at a time; they are left out.
    """
    drops = dict.fromkeys(DROPS, 0.0)
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = timm.create_model(model.timm_name, pretrained=False, **drops, **small)
            return made, tuple(drops)
        except TypeError as error:
            refused = [name for name in drops if f"'{name}'" in str(error)]
            if not refused:
                raise
            for name in refused:
                del drops[name]
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = f"timm cannot make {model.name} at this scale: {error}"
            raise NotSupported(reason.strip()) from error


def _own_image(made: Any, mode: str) -> int:
    """The side of the images it is meant for; many are tested on larger ones than trained on."""
    config = made.pretrained_cfg
    tested = None if mode == "training" else config.get("test_input_size")
    return int((tested or config["input_size"])[-1])


@cache
def _registered(folder: str) -> frozenset[str]:
    """Names that timm registers, read in its source: importing it costs seconds."""
    names: set[str] = set()
    models = os.path.join(folder, "models")
    if not folder or not os.path.isdir(models):
        return frozenset()
    for file in sorted(os.listdir(models)):
        if file.endswith(".py"):
            with open(os.path.join(models, file), encoding="utf-8") as source:
                names.update(_REGISTERED.findall(source.read()))
    return frozenset(names)
