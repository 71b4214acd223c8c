"""Instructions that the processor announces and does not carry out."""

from __future__ import annotations

import signal

ILLEGAL = signal.SIGILL
LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_FP16"
"""All that oneDNN uses but the tiles of AMX."""
ILLEGAL_REMEDY = (
    "A library used an instruction that the processor, or the virtual machine around it, announces "
    "and does not carry out. It is often AMX, in products of bf16, fp16 or int8: "
    f"set {LIMIT}={WITHOUT_AMX} for this command, and for your own programs here."
)
"""Seen on a virtual machine whose processor names the flag `amx_tile`, while CPUID's leaf 0x1D,
which says how large the tiles are, is empty: torch's first bf16 product there ends the program."""
