"""The nouns of the house: frozen, versioned dataclasses and their JSON.

Holds: what every other room hands on (arms, contracts, environments, measurements,
comparisons, checks, results). Touches: nothing but the standard library, because these
files travel to the worker, which may live in another interpreter.
"""

from torchstone.records.arm import (
    ALLOCATORS,
    MODES,
    PRECISIONS,
    ArmSpec,
    Statement,
)
from torchstone.records.check import Check, Level
from torchstone.records.codec import RecordError, from_data, to_data
from torchstone.records.comparison import Comparison, Estimate, Verdict
from torchstone.records.contract import Agreement, Contract, Leaf, describe_leaf
from torchstone.records.environment import Environment, GitState
from torchstone.records.errors import TorchstoneError, UsageError
from torchstone.records.measurement import (
    MEASUREMENT_SCHEMA,
    CompileCost,
    Graphs,
    Integrity,
    Measurement,
    Memory,
    Noise,
    Outcome,
    OutcomeDetail,
    Replicate,
    Turn,
    WarmUp,
)
from torchstone.records.result import RESULT_SCHEMA, Method, Result

__all__ = [
    "ALLOCATORS",
    "MEASUREMENT_SCHEMA",
    "MODES",
    "PRECISIONS",
    "RESULT_SCHEMA",
    "Agreement",
    "ArmSpec",
    "Check",
    "Comparison",
    "CompileCost",
    "Contract",
    "Environment",
    "Estimate",
    "GitState",
    "Graphs",
    "Integrity",
    "Leaf",
    "Level",
    "Measurement",
    "Memory",
    "Method",
    "Noise",
    "Outcome",
    "OutcomeDetail",
    "RecordError",
    "Replicate",
    "Result",
    "Statement",
    "TorchstoneError",
    "Turn",
    "UsageError",
    "Verdict",
    "WarmUp",
    "describe_leaf",
    "from_data",
    "to_data",
]
