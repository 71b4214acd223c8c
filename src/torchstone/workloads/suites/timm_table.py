"""The models of the timm suite and their sizes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    {
        "beit_base_patch16_224",
        "convnextv2_nano.fcmae_ft_in22k_in1k",
        "deit_base_distilled_patch16_224",
        "ghostnet_100",
        "inception_v3",
        "mobilenetv3_large_100",
        "mobilevit_s",
        "nfnet_l0",
        "repvgg_a2",
        "resnet18",
        "resnet50",
        "swin_base_patch4_window7_224",
        "tf_efficientnet_b0",
        "vit_base_patch16_224",
        "vit_small_patch16_224",
    }
)
"""One of each kind of network."""
