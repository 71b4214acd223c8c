"""The timm suite: image models of timm with random weights."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torchstone.records import SCALES, NotSupported
from torchstone.workloads.load import seed_everything
from torchstone.workloads.suites.base import (
    BuildSetting,
    ModelInfo,
    check_scale,
    find_model,
    list_model,
)
from torchstone.workloads.suites.vision import (
    SMALL_BATCH,
    import_vision,
    missing_library,
    no_warnings,
    package_folder,
    vision_workload,
)
from torchstone.workloads.workload import Workload

# The models of the timm suite and their sizes, as data.


SMALL_IMAGE = 128
"""For networks of convolutions, which halve it five times: four by four pixels are left for batch
normalisation to average over, also in training with a batch of 2."""
PATCH_IMAGE = 112
"""For networks of fixed image size: a whole number of patches of 14 and of 16 pixels."""
FULL_BATCH = 128


@dataclass(frozen=True)
class TimmModel:
    """One model. `small` are arguments of timm's constructor that the small scale adds."""

    name: str
    batch: int = FULL_BATCH
    image: int = SMALL_IMAGE
    small: Mapping[str, Any] = field(default_factory=dict)
    created_as: str = ""
    """What timm calls it today, where the dashboard's name is an old one."""

    @property
    def timm_name(self) -> str:
        """The name for `timm.create_model`."""
        return self.created_as or self.name


def _patches(
    name: str, batch: int = FULL_BATCH, image: int = PATCH_IMAGE, **small: Any
) -> TimmModel:
    """A model that must be told its image size."""
    return TimmModel(name, batch, image, {"img_size": image, **small})


DASHBOARD: tuple[TimmModel, ...] = (
    TimmModel("adv_inception_v3", created_as="inception_v3.tf_adv_in1k"),
    _patches("beit_base_patch16_224", batch=64, depth=4),
    TimmModel("convnextv2_nano.fcmae_ft_in22k_in1k"),
    _patches("deit_base_distilled_patch16_224", batch=64, depth=4),
    _patches("deit_tiny_patch16_224.fb_in1k", image=224, depth=4),
    TimmModel("dm_nfnet_f0", image=64, small={"depths": (1, 2, 2, 2)}),
    TimmModel("ghostnet_100", batch=512),
    TimmModel("inception_v3"),
    TimmModel("mobilenetv2_100"),
    TimmModel("mobilenetv3_large_100", batch=512),
    TimmModel("mobilevit_s", batch=64),
    TimmModel("nfnet_l0", image=96),
    TimmModel("repvgg_a2"),
    _patches("swin_base_patch4_window7_224", batch=64, depths=(2, 2, 2, 2)),
    TimmModel("tf_efficientnet_b0"),
    _patches("visformer_small", image=128),
    _patches("vit_base_patch14_dinov2.lvd142m", depth=4),
    _patches("vit_base_patch16_siglip_256", depth=4),
)
"""The list of the PyTorch dashboard's runner (`benchmarks/dynamo/timm_models_list.txt`), with its
batch sizes as it runs them: it halves four of them."""

WELL_KNOWN: tuple[TimmModel, ...] = (
    TimmModel("convnext_tiny", image=96),
    TimmModel("densenet121"),
    TimmModel("efficientnet_b0"),
    _patches("levit_256", image=224),
    _patches("mixer_s16_224"),
    TimmModel("mobilenetv3_small_100"),
    TimmModel("poolformer_s12"),
    TimmModel("regnety_120", image=64),
    TimmModel("resnest14d"),
    TimmModel("resnet18"),
    TimmModel("resnet50"),
    TimmModel("resnext50_32x4d"),
    _patches("swin_tiny_patch4_window7_224"),
    _patches("vit_base_patch16_224", depth=4),
    _patches("vit_small_patch16_224", depth=4),
    TimmModel("vovnet39a", image=96),
)

TIMM_MODELS: tuple[TimmModel, ...] = (*DASHBOARD, *WELL_KNOWN)

QUICK: dict[str, tuple[str, ...]] = {
    "deit_tiny_patch16_224.fb_in1k": ("inference",),
}
"""Models of the quick tier and the modes they run in there: some gain by inductor, some lose, some
do not care, and none takes long to compile. This one gained 5 % here, after 14 to 20 s."""

STANDARD = frozenset(
    (
        *("beit_base_patch16_224", "convnextv2_nano.fcmae_ft_in22k_in1k"),
        *("deit_base_distilled_patch16_224", "ghostnet_100", "inception_v3"),
        *("mobilenetv3_large_100", "mobilevit_s", "nfnet_l0", "repvgg_a2", "resnet18", "resnet50"),
        *("swin_base_patch4_window7_224", "tf_efficientnet_b0", "vit_base_patch16_224"),
        "vit_small_patch16_224",
    )
)
"""One of each kind of network."""


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
        """The dashboard's models and some well-known ones."""
        missing = missing_library("torch", "torchvision", "timm")
        names = (model.name for model in TIMM_MODELS)
        return tuple(list_model(name, "vision", QUICK, STANDARD, missing) for name in names)

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
        seed_everything(setting.seed)
        if setting.scale == "small":
            made, zeroed = _create(timm, entry, entry.small)
            changes = {n.replace("_", " "): v for n, v in entry.small.items() if n != "img_size"}
            return vision_workload(made, setting, SMALL_BATCH, entry.image, zeroed, changes)
        made, zeroed = _create(timm, entry, {})
        image = _own_image(made, setting.mode)
        return vision_workload(made, setting, entry.batch, image, zeroed, {})


TIMM = TimmSuite()


def _find(timm: Any, name: str) -> TimmModel:
    """The listed model, or one made up for a name that timm knows."""
    if not timm.is_model(name.partition(".")[0]) or name in {one.name for one in TIMM_MODELS}:
        return find_model("timm", TIMM_MODELS, name)
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    fixed = config is not None and config.fixed_input_size
    return _patches(name) if fixed else TimmModel(name)


def _create(timm: Any, model: TimmModel, small: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """The model, and the names of the arguments that were set to 0. A constructor refuses the names
    that it does not know, one at a time; they are left out."""
    drops = dict.fromkeys(DROPS, 0.0)
    while True:
        try:
            with no_warnings():
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
