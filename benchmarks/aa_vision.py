"""The arms of `aa_models` that need torch and timm; torch stands first, so that workers are forked
from a process that has it. timm may need torchvision repaired before, which its maker does."""

import torch

# isort: split
from aa_models import make_base, make_slower

__all__ = ["make_base", "make_slower", "torch"]
