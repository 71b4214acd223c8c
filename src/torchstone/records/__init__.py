"""The nouns of the house: frozen, versioned dataclasses and their JSON.

Holds: what every other room hands on (arms, contracts, environments, measurements,
comparisons, checks, results). Touches: nothing but the standard library, because these
files travel to the worker, which may live in another interpreter.
"""

from torchstone.records.arm import (
    ALLOCATORS,
    DYNAMIC_SHAPES,
    MODES,
    PRECISIONS,
    ArmSpec,
    Statement,
)
from torchstone.records.calibration import CALIBRATION_SCHEMA, DRAM, Calibration, Peak
from torchstone.records.check import Check, Level
from torchstone.records.codec import RecordError, from_data, to_data
from torchstone.records.comparison import Comparison, Estimate, Verdict
from torchstone.records.contract import Agreement, Contract, Leaf, describe_leaf
from torchstone.records.doctor import DOCTOR_SCHEMA, DoctorReport, Finding
from torchstone.records.environment import Environment, GitState
from torchstone.records.errors import NotSupported, TorchstoneError, UsageError
from torchstone.records.foreign import FOREIGN_DEFINITION, ForeignFigures
from torchstone.records.measurement import (
    MEASUREMENT_SCHEMA,
    CompileCost,
    Flops,
    Graphs,
    Integrity,
    Measurement,
    Memory,
    Noise,
    OpWork,
    Outcome,
    OutcomeDetail,
    Replicate,
    Turn,
    WarmUp,
)
from torchstone.records.result import RESULT_SCHEMA, Judgement, Method, Result, SecondLook
from torchstone.records.run import (
    CASE_KIND,
    FIGURES_DEFINITION,
    RUN_SCHEMA,
    SCALES,
    SUITE_DEFINITION,
    CaseFigures,
    CaseKey,
    Mean,
    PassRate,
    PlannedCase,
    Run,
    RunView,
    SuiteSummary,
)

__all__ = [
    "ALLOCATORS",
    "CALIBRATION_SCHEMA",
    "CASE_KIND",
    "DOCTOR_SCHEMA",
    "DRAM",
    "DYNAMIC_SHAPES",
    "FIGURES_DEFINITION",
    "FOREIGN_DEFINITION",
    "MEASUREMENT_SCHEMA",
    "MODES",
    "PRECISIONS",
    "RESULT_SCHEMA",
    "RUN_SCHEMA",
    "SCALES",
    "SUITE_DEFINITION",
    "Agreement",
    "ArmSpec",
    "Calibration",
    "CaseFigures",
    "CaseKey",
    "Check",
    "Comparison",
    "CompileCost",
    "Contract",
    "DoctorReport",
    "Environment",
    "Estimate",
    "Finding",
    "Flops",
    "ForeignFigures",
    "GitState",
    "Graphs",
    "Integrity",
    "Judgement",
    "Leaf",
    "Level",
    "Mean",
    "Measurement",
    "Memory",
    "Method",
    "Noise",
    "NotSupported",
    "OpWork",
    "Outcome",
    "OutcomeDetail",
    "PassRate",
    "Peak",
    "PlannedCase",
    "RecordError",
    "Replicate",
    "Result",
    "Run",
    "RunView",
    "SecondLook",
    "Statement",
    "SuiteSummary",
    "TorchstoneError",
    "Turn",
    "UsageError",
    "Verdict",
    "WarmUp",
    "describe_leaf",
    "from_data",
    "to_data",
]
