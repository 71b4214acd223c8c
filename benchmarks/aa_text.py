"""The arms of `aa_models` that need torch and transformers; torch stands first, so that workers are
forked from a process that has it. The suite imports transformers with its own precautions."""

import torch

# isort: split
from aa_models import make_base, make_slower

__all__ = ["make_base", "make_slower", "torch"]
