"""The torchvision suite: its classification models with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    vision_workload,
)
from torchstone.workloads.workload import Workload

# The models of the torchvision suite and their sizes, as data.


SMALL_IMAGE = 128
"""Networks of convolutions halve it five times: four by four pixels are left for batch
normalisation to average over, also in training with a batch of 2."""
FULL_BATCH = 32


@dataclass(frozen=True)
class TorchvisionModel:
    """One model: the arguments of its builder, or of the class where the builder fixes too much.
    `zero`: arguments of the builder that drop something. `kind` and `parts`: how the class is made
    instead. `blocks`: the most blocks that a stage keeps at the small scale; 0: all of them."""

    name: str
    zero: tuple[str, ...] = ()
    own_image: int = 224
    image: int = SMALL_IMAGE
    always: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict)
    blocks: int = 0


def _plain(*zero: str, **images: int) -> tuple[TorchvisionModel, ...]:
    """Models made by their builder, each with its image at the small scale."""
    return tuple(TorchvisionModel(name, zero, image=image) for name, image in images.items())


def _efficient(**images: tuple[int, int]) -> tuple[TorchvisionModel, ...]:
    """EfficientNets: the image they are meant for and the small one."""
    zero = ("dropout", "stochastic_depth_prob")
    return tuple(TorchvisionModel(name, zero, *sizes) for name, sizes in images.items())


def _made(
    kind: str, name: str, image: int, blocks: int, *zero: str, **parts: Any
) -> TorchvisionModel:
    """A model whose class is made here by the numbers in `parts`, which its builder fixes."""
    return TorchvisionModel(name, zero, image=image, kind=kind, parts=parts, blocks=blocks)


def _convnext(name: str, width: int) -> TorchvisionModel:
    dims, depths = tuple(width * 2**stage for stage in range(4)), (3, 3, 27, 3)
    return _made("convnext", name, 96, 2, "stochastic_depth_prob", dims=dims, depths=depths)


def _regnet(
    name: str, image: int, blocks: int, depth: int, w_0: int, w_a: float, w_m: float, group: int
) -> TorchvisionModel:
    squeeze = {"se_ratio": 0.25} if name.startswith("regnet_y") else {}
    parts = {"depth": depth, "w_0": w_0, "w_a": w_a, "w_m": w_m, "group_width": group}
    return _made("regnet", name, image, blocks, **parts, **squeeze)


def _resnet(name: str, blocks: int, **widths: int) -> TorchvisionModel:
    return _made("resnet", name, 96, blocks, layers=(3, 4, 23, 3), **widths)


def _swin(name: str, blocks: int, dim: int, third: int) -> TorchvisionModel:
    """Swin Transformers; `third`: blocks of the third stage."""
    second = name.startswith("swin_v2")
    window, image = (8, 128) if second else (7, 112)
    parts = {"dim": dim, "depths": (2, 2, third, 2), "window": window, "second": second}
    zero = ("dropout", "attention_dropout", "stochastic_depth_prob")
    made = _made("swin", name, image, blocks, *zero, **parts)
    return replace(made, own_image=256) if second else made


def _vit(
    name: str, image: int, blocks: int, patch: int, layers: int, heads: int, hidden: int
) -> TorchvisionModel:
    parts = {"patch": patch, "layers": layers, "heads": heads, "hidden": hidden}
    return _made("vit", name, image, blocks, "dropout", "attention_dropout", **parts)


TORCHVISION_MODELS: tuple[TorchvisionModel, ...] = (
    *_plain("dropout", alexnet=224),
    *_plain("stochastic_depth_prob", convnext_tiny=96, convnext_small=96),
    _convnext("convnext_base", 128),
    _convnext("convnext_large", 192),
    *_plain("drop_rate", densenet121=128, densenet161=96, densenet169=96, densenet201=96),
    *_efficient(
        efficientnet_b0=(224, 128),
        efficientnet_b1=(240, 128),
        efficientnet_b2=(288, 128),
        efficientnet_b3=(300, 96),
        efficientnet_b4=(380, 96),
        efficientnet_b5=(456, 96),
        efficientnet_b6=(528, 96),
        efficientnet_b7=(600, 64),
        efficientnet_v2_s=(384, 96),
        efficientnet_v2_m=(480, 64),
        efficientnet_v2_l=(480, 64),
    ),
    TorchvisionModel("googlenet", ("dropout", "dropout_aux"), always={"init_weights": True}),
    # The classifier half-way up needs images of about 299 pixels.
    TorchvisionModel(
        "inception_v3",
        ("dropout",),
        own_image=299,
        always={"init_weights": True},
        small={"aux_logits": False},
    ),
    TorchvisionModel(
        "maxvit_t",
        ("attention_dropout", "mlp_dropout", "stochastic_depth_prob"),
        kind="maxvit",
        parts={"partition": 7},
        small={"partition": 4},
        blocks=2,
    ),
    *_plain("dropout", mnasnet0_5=128, mnasnet0_75=128, mnasnet1_0=128, mnasnet1_3=128),
    *_plain("dropout", mobilenet_v2=128, mobilenet_v3_large=128, mobilenet_v3_small=128),
    *_plain(regnet_x_400mf=128, regnet_x_800mf=128, regnet_x_1_6gf=128, regnet_x_3_2gf=96),
    *_plain(regnet_x_8gf=96),
    _regnet("regnet_x_16gf", 96, 4, 22, 216, 55.59, 2.1, 128),
    _regnet("regnet_x_32gf", 96, 2, 23, 320, 69.86, 2.0, 168),
    *_plain(regnet_y_400mf=128, regnet_y_800mf=128, regnet_y_1_6gf=128, regnet_y_3_2gf=96),
    *_plain(regnet_y_8gf=96),
    _regnet("regnet_y_16gf", 96, 4, 18, 200, 106.23, 2.48, 112),
    _regnet("regnet_y_32gf", 96, 2, 20, 232, 115.89, 2.53, 232),
    # A lower depth also makes fewer stages, less wide.
    replace(_regnet("regnet_y_128gf", 64, 2, 27, 456, 160.83, 2.52, 264), small={"depth": 10}),
    *_plain(resnet18=128, resnet34=128, resnet50=128, resnet101=96, resnet152=96),
    *_plain(resnext50_32x4d=96),
    _resnet("resnext101_32x8d", 4, groups=32, width_per_group=8),
    _resnet("resnext101_64x4d", 4, groups=64, width_per_group=4),
    *_plain(wide_resnet50_2=96),
    _resnet("wide_resnet101_2", 2, width_per_group=128),
    *_plain(shufflenet_v2_x0_5=128, shufflenet_v2_x1_0=128),
    *_plain(shufflenet_v2_x1_5=128, shufflenet_v2_x2_0=128),
    *_plain("dropout", squeezenet1_0=128, squeezenet1_1=128),
    _swin("swin_t", 0, 96, 6),
    _swin("swin_s", 2, 96, 18),
    _swin("swin_b", 2, 128, 18),
    _swin("swin_v2_t", 0, 96, 6),
    _swin("swin_v2_s", 2, 96, 18),
    _swin("swin_v2_b", 2, 128, 18),
    *_plain("dropout", vgg11=64, vgg11_bn=64, vgg13=64, vgg13_bn=64),
    *_plain("dropout", vgg16=64, vgg16_bn=64, vgg19=64, vgg19_bn=64),
    _vit("vit_b_16", 112, 4, patch=16, layers=12, heads=12, hidden=768),
    _vit("vit_b_32", 224, 4, patch=32, layers=12, heads=12, hidden=768),
    _vit("vit_l_16", 112, 3, patch=16, layers=24, heads=16, hidden=1024),
    _vit("vit_l_32", 224, 3, patch=32, layers=24, heads=16, hidden=1024),
    _vit("vit_h_14", 112, 2, patch=14, layers=32, heads=16, hidden=1280),
)

QUICK: dict[str, tuple[str, ...]] = {}
"""Models of the quick tier and the modes they run in there."""

STANDARD = frozenset(
    (
        *("alexnet", "convnext_tiny", "efficientnet_b0", "googlenet", "mobilenet_v2"),
        *("mobilenet_v3_large", "regnet_y_400mf", "resnet18", "resnet50", "shufflenet_v2_x1_0"),
        *("squeezenet1_1", "swin_t", "vgg16", "vit_b_16"),
    )
)
"""One of each family."""


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
        """Every classification model of torchvision."""
        missing = missing_library("torch", "torchvision")
        names = (model.name for model in TORCHVISION_MODELS)
        return tuple(list_model(name, "vision", QUICK, STANDARD, missing) for name in names)

    def import_library(self, model: str = "") -> None:
        """Import torchvision, repaired where it needs it."""
        import_vision("torchvision")

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model in 32-bit floats on the CPU, with random weights, and its images."""
        check_scale(self, setting.scale)
        entry = find_model(self.name, TORCHVISION_MODELS, model)
        models = import_vision("torchvision").models
        if not hasattr(models, entry.name):
            raise NotSupported(f"the installed torchvision has no {entry.name}")
        small = setting.scale == "small"
        seed_everything(setting.seed)
        with no_warnings():
            made = _make(models, entry, small)
        if small:
            changes = changes_of(entry)
            return vision_workload(made, setting, SMALL_BATCH, entry.image, entry.zero, changes)
        return vision_workload(made, setting, FULL_BATCH, entry.own_image, entry.zero, {})


TORCHVISION = TorchvisionSuite()


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


def _make_vit(
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


def _make_swin(
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


def _make_maxvit(models: Any, shape: _Shape, drops: Drops, partition: int) -> Any:
    return models.maxvit.MaxVit(
        input_size=(shape.image, shape.image),
        stem_channels=64,
        partition_size=partition,
        block_channels=[64, 128, 256, 512],
        block_layers=shape.cut(2, 2, 5, 2),
        head_dim=HEAD_WIDTH,
        **drops,
    )


def _make_convnext(
    models: Any, shape: _Shape, drops: Drops, dims: tuple[int, ...], depths: tuple[int, ...]
) -> Any:
    convnext = models.convnext
    stages = [
        convnext.CNBlockConfig(width, wider, blocks)
        for width, wider, blocks in zip(dims, (*dims[1:], None), shape.cut(*depths), strict=True)
    ]
    return convnext.ConvNeXt(stages, **drops)


def _make_resnet(
    models: Any, shape: _Shape, drops: Drops, layers: tuple[int, ...], **widths: int
) -> Any:
    resnet = models.resnet
    return resnet.ResNet(resnet.Bottleneck, shape.cut(*layers), **widths, **drops)


def _make_regnet(models: Any, shape: _Shape, drops: Drops, **parts: float) -> Any:
    stages = models.regnet.BlockParams.from_init_params(**parts)
    stages.depths = shape.cut(*stages.depths)
    return models.regnet.RegNet(stages, **drops)


MAKERS: dict[str, Callable[..., Any]] = {
    "convnext": _make_convnext,
    "maxvit": _make_maxvit,
    "regnet": _make_regnet,
    "resnet": _make_resnet,
    "swin": _make_swin,
    "vit": _make_vit,
}
"""Ways around builders that fix the depth or what is dropped."""
