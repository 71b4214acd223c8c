"""The torchvision suite: its classification models with random weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.records import SCALES, NotSupported, UsageError
from torchstone.workloads.draw import seed_everything
from torchstone.workloads.suites.base import BuildSetting, ModelInfo, check_scale, tier_of
from torchstone.workloads.suites.torchvision_table import (
    FULL_BATCH,
    QUICK,
    STANDARD,
    TORCHVISION_MODELS,
    TorchvisionModel,
)
from torchstone.workloads.suites.vision import (
    SMALL_BATCH,
    import_vision,
    missing_library,
    small_note,
    vision_workload,
)
from torchstone.workloads.workload import Workload

MLP_RATIO = 4
HEAD_WIDTH = 32
"""Of all Swin and MaxViT models."""


@dataclass(frozen=True)
class TorchvisionSuite:
    """Satisfies `Suite`."""

    name: str = "torchvision"
    prefix: str = "torchvision"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Every classification model of torchvision; nothing is imported."""
        missing = missing_library("torch", "torchvision")
        return tuple(
            ModelInfo(
                name=model.name,
                family="vision",
                tier=tier_of(model.name, QUICK, STANDARD),
                quick_modes=QUICK.get(model.name, ()),
                missing=missing,
            )
            for model in TORCHVISION_MODELS
        )

    def import_library(self, model: str = "") -> None:
        """Import torchvision, repaired where it needs it."""
        import_vision("torchvision")

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model in 32-bit floats on the CPU, with random weights, and its images."""
        check_scale(self, setting.scale)
        entry = _find(model)
        models = import_vision("torchvision").models
        if not hasattr(models, entry.name):
            raise NotSupported(f"the installed torchvision has no {entry.name}")
        small = setting.scale == "small"
        seed_everything(setting.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = _make(models, entry, small)
        if small:
            batch, image = SMALL_BATCH, entry.image
            note = small_note(image, changes_of(entry))
        else:
            batch, image = FULL_BATCH, entry.own_image
            note = f"full scale: {batch} images of {image} x {image}"
        return vision_workload(made, setting, batch, image, entry.zero, (note,))


TORCHVISION = TorchvisionSuite()


def _find(name: str) -> TorchvisionModel:
    for model in TORCHVISION_MODELS:
        if model.name == name:
            return model
    raise UsageError(
        f"torchvision has no model {name!r}.", "`torchstone list models torchvision` lists them."
    )


def changes_of(entry: TorchvisionModel) -> dict[str, Any]:
    """What the small scale changes beside the images, in words and values."""
    changes = {name.replace("_", " "): value for name, value in entry.small.items()}
    return {**changes, "blocks a stage at most": entry.blocks} if entry.blocks else changes


def _make(models: Any, entry: TorchvisionModel, small: bool) -> Any:
    changes = entry.small if small else {}
    drops = dict.fromkeys(entry.zero, 0.0)
    if not entry.kind:
        builder = getattr(models, entry.name)
        return builder(weights=None, **drops, **{**entry.always, **changes})
    most = entry.blocks if small and entry.blocks else None
    shape = _Shape(entry.image if small else entry.own_image, most)
    return MAKERS[entry.kind](models, shape, drops, **{**entry.parts, **changes})


@dataclass(frozen=True)
class _Shape:
    """The side of the images, and the most blocks that a stage may have."""

    image: int
    most: int | None

    def cut(self, *blocks: int) -> list[int]:
        """Blocks of each stage."""
        return [min(n, self.most) if self.most else n for n in blocks]


Drops = dict[str, float]


def _vit(
    models: Any, shape: _Shape, drops: Drops, patch: int, layers: int, heads: int, hidden: int
) -> Any:
    return models.vision_transformer.VisionTransformer(
        image_size=shape.image,
        patch_size=patch,
        num_layers=shape.cut(layers)[0],
        num_heads=heads,
        hidden_dim=hidden,
        mlp_dim=MLP_RATIO * hidden,
        **drops,
    )


def _swin(
    models: Any,
    shape: _Shape,
    drops: Drops,
    dim: int,
    depths: tuple[int, ...],
    window: int,
    second: bool,
) -> Any:
    swin = models.swin_transformer
    version = {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2}
    return swin.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=dim,
        depths=shape.cut(*depths),
        num_heads=[dim * 2**stage // HEAD_WIDTH for stage in range(len(depths))],
        window_size=[window, window],
        **drops,
        **(version if second else {}),
    )


def _maxvit(models: Any, shape: _Shape, drops: Drops, partition: int) -> Any:
    return models.maxvit.MaxVit(
        input_size=(shape.image, shape.image),
        stem_channels=64,
        partition_size=partition,
        block_channels=[64, 128, 256, 512],
        block_layers=shape.cut(2, 2, 5, 2),
        head_dim=HEAD_WIDTH,
        **drops,
    )


def _convnext(
    models: Any, shape: _Shape, drops: Drops, dims: tuple[int, ...], depths: tuple[int, ...]
) -> Any:
    convnext = models.convnext
    stages = [
        convnext.CNBlockConfig(width, wider, blocks)
        for width, wider, blocks in zip(dims, (*dims[1:], None), shape.cut(*depths), strict=True)
    ]
    return convnext.ConvNeXt(stages, **drops)


def _resnet(
    models: Any, shape: _Shape, drops: Drops, layers: tuple[int, ...], **widths: int
) -> Any:
    resnet = models.resnet
    return resnet.ResNet(resnet.Bottleneck, shape.cut(*layers), **widths, **drops)


def _regnet(models: Any, shape: _Shape, drops: Drops, **parts: float) -> Any:
    stages = models.regnet.BlockParams.from_init_params(**parts)
    stages.depths = shape.cut(*stages.depths)
    return models.regnet.RegNet(stages, **drops)


MAKERS: dict[str, Callable[..., Any]] = {
    "convnext": _convnext,
    "maxvit": _maxvit,
    "regnet": _regnet,
    "resnet": _resnet,
    "swin": _swin,
    "vit": _vit,
}
"""Ways around builders that fix the depth or what is dropped."""
