"""The models of the torchvision suite and their sizes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SMALL_IMAGE = 128
"""Networks of convolutions halve it five times: four by four pixels are left for batch
normalisation to average over, also in training with a batch of 2."""
FULL_BATCH = 32


@dataclass(frozen=True)
class TorchvisionModel:
    """One model: the arguments of its builder, or of the class where the builder fixes too much.

    `zero`: arguments of the builder that drop something. `kind` and `parts`: how the class is made
    instead. `blocks`: the most blocks that a stage keeps at the small scale; 0: all of them.
    """

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


def _resnet(name: str, image: int, blocks: int, **parts: int) -> TorchvisionModel:
    stages = {"layers": (3, 4, 23, 3), **parts}
    return TorchvisionModel(name, image=image, kind="resnet", parts=stages, blocks=blocks)


def _regnet(
    name: str, image: int, blocks: int, small_depth: int = 0, **parts: float
) -> TorchvisionModel:
    """RegNets by the numbers that make them; a lower depth also makes fewer stages, less wide."""
    small = {"depth": small_depth} if small_depth else {}
    return TorchvisionModel(
        name, image=image, kind="regnet", parts=parts, blocks=blocks, small=small
    )


def _convnext(name: str, image: int, blocks: int, **parts: Any) -> TorchvisionModel:
    zero = ("stochastic_depth_prob",)
    return TorchvisionModel(name, zero, image=image, kind="convnext", parts=parts, blocks=blocks)


def _vit(name: str, image: int, blocks: int, **parts: int) -> TorchvisionModel:
    zero = ("dropout", "attention_dropout")
    return TorchvisionModel(name, zero, image=image, kind="vit", parts=parts, blocks=blocks)


def _swin(name: str, blocks: int, dim: int, third: int, second: bool = False) -> TorchvisionModel:
    """Swin Transformers; `third`: blocks of the third stage; `second`: of version 2."""
    parts = {
        "dim": dim,
        "depths": (2, 2, third, 2),
        "window": 8 if second else 7,
        "second": second,
    }
    return TorchvisionModel(
        name,
        ("dropout", "attention_dropout", "stochastic_depth_prob"),
        own_image=256 if second else 224,
        image=128 if second else 112,
        kind="swin",
        parts=parts,
        blocks=blocks,
    )


TORCHVISION_MODELS: tuple[TorchvisionModel, ...] = (
    *_plain("dropout", alexnet=224),
    *_plain("stochastic_depth_prob", convnext_tiny=96, convnext_small=96),
    _convnext("convnext_base", 96, 2, dims=(128, 256, 512, 1024), depths=(3, 3, 27, 3)),
    _convnext("convnext_large", 96, 2, dims=(192, 384, 768, 1536), depths=(3, 3, 27, 3)),
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
    _regnet("regnet_x_16gf", 96, 4, depth=22, w_0=216, w_a=55.59, w_m=2.1, group_width=128),
    _regnet("regnet_x_32gf", 96, 2, depth=23, w_0=320, w_a=69.86, w_m=2.0, group_width=168),
    *_plain(regnet_y_400mf=128, regnet_y_800mf=128, regnet_y_1_6gf=128, regnet_y_3_2gf=96),
    *_plain(regnet_y_8gf=96),
    _regnet(
        "regnet_y_16gf",
        96,
        4,
        depth=18,
        w_0=200,
        w_a=106.23,
        w_m=2.48,
        group_width=112,
        se_ratio=0.25,
    ),
    _regnet(
        "regnet_y_32gf",
        96,
        2,
        depth=20,
        w_0=232,
        w_a=115.89,
        w_m=2.53,
        group_width=232,
        se_ratio=0.25,
    ),
    _regnet(
        "regnet_y_128gf",
        64,
        2,
        small_depth=10,
        depth=27,
        w_0=456,
        w_a=160.83,
        w_m=2.52,
        group_width=264,
        se_ratio=0.25,
    ),
    *_plain(resnet18=128, resnet34=128, resnet50=128, resnet101=96, resnet152=96),
    *_plain(resnext50_32x4d=96),
    _resnet("resnext101_32x8d", 96, 4, groups=32, width_per_group=8),
    _resnet("resnext101_64x4d", 96, 4, groups=64, width_per_group=4),
    *_plain(wide_resnet50_2=96),
    _resnet("wide_resnet101_2", 96, 2, width_per_group=128),
    *_plain(
        shufflenet_v2_x0_5=128,
        shufflenet_v2_x1_0=128,
        shufflenet_v2_x1_5=128,
        shufflenet_v2_x2_0=128,
    ),
    *_plain("dropout", squeezenet1_0=128, squeezenet1_1=128),
    _swin("swin_t", 0, 96, 6),
    _swin("swin_s", 2, 96, 18),
    _swin("swin_b", 2, 128, 18),
    _swin("swin_v2_t", 0, 96, 6, second=True),
    _swin("swin_v2_s", 2, 96, 18, second=True),
    _swin("swin_v2_b", 2, 128, 18, second=True),
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
    {
        "alexnet",
        "convnext_tiny",
        "efficientnet_b0",
        "googlenet",
        "mobilenet_v2",
        "mobilenet_v3_large",
        "regnet_y_400mf",
        "resnet18",
        "resnet50",
        "shufflenet_v2_x1_0",
        "squeezenet1_1",
        "swin_t",
        "vgg16",
        "vit_b_16",
    }
)
"""One of each family."""
