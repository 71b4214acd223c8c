"""Plans cases, starts workers, gives turns; deaths become outcomes.

Holds: the payload, worker processes and their time-outs, the check of outputs, the solo pass, the
rounds of turns, and `run_case`, which tells the story. Touches: `records`, `stats`, `machine`,
`variants` and `workloads` for names, `measure` for its messages; processes and temporary files.
Never imports torch and never runs user code in its own process.
"""

from torchstone.conductor.case import (
    EFFORTS,
    FAST,
    USUAL,
    ArmNow,
    CaseResult,
    CaseSpec,
    Events,
    ExtraChecks,
    LiveEvents,
    Settings,
)
from torchstone.conductor.extra_checks import check_metric
from torchstone.conductor.launch import Templates, open_templates
from torchstone.conductor.run import run_case
from torchstone.conductor.worker import ArmEnded, signal_name

__all__ = [
    "EFFORTS",
    "FAST",
    "USUAL",
    "ArmEnded",
    "ArmNow",
    "CaseResult",
    "CaseSpec",
    "Events",
    "ExtraChecks",
    "LiveEvents",
    "Settings",
    "Templates",
    "check_metric",
    "open_templates",
    "run_case",
    "signal_name",
]
