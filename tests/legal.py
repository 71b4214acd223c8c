"""Machines that announce instructions which they do not carry out: tests run without those."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from torchstone.machine.hardware import ILLEGAL, LIMIT, WITHOUT_AMX

ANNOUNCED = "amx_tile"
PRODUCT = """
import torch
torch.nn.Linear(64, 64).bfloat16()(torch.zeros(8, 64).bfloat16())
"""


def keep_to_legal_instructions() -> None:
    """Where torch's bf16 products end a program, keep this process and all it starts from that."""
    if LIMIT in os.environ or ANNOUNCED not in _processor():
        return
    tried = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, check=False)
    if tried.returncode == -ILLEGAL:
        os.environ[LIMIT] = WITHOUT_AMX


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
