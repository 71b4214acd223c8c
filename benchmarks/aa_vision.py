"""The arms of `aa_models` that need torch, torchvision and timm; their imports stand first, so that
workers are forked from a process that has them."""

import timm
import torch

# isort: split
from aa_models import make_base, make_slower

__all__ = ["make_base", "make_slower", "timm", "torch"]
