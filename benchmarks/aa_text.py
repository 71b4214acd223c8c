"""The arms of `aa_models` that need transformers; its import stands first, so that workers are
forked from a process that has it."""

import torch
from transformers import BertForMaskedLM, GPT2ForSequenceClassification

# isort: split
from aa_models import make_base, make_slower

__all__ = ["BertForMaskedLM", "GPT2ForSequenceClassification", "make_base", "make_slower", "torch"]
