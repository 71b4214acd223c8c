"""Pure maths on numpy: from raw samples to ratios, intervals, stopping and verdicts.

Holds: distributions, estimators of one process, ratio intervals over processes, preset looks,
verdicts with their corrections, figures over many comparisons and over a suite's cases, changes
between two runs, and shares of calibrated peaks.
Touches: nothing; every function depends on its arguments alone. Imports only `records` and numpy,
the latter when samples are looked at: stored figures need none.
"""

# Every public name of these modules can be imported from here.
# mypy: implicit-reexport
# ruff: noqa: F403

from torchstone.records import STATISTICS_DEFINITION
from torchstone.stats.compare import *
from torchstone.stats.drift import *
from torchstone.stats.estimators import *
from torchstone.stats.ratio import *
from torchstone.stats.roofline import *
from torchstone.stats.suite import *

DEFINITION = STATISTICS_DEFINITION
"""The version of every definition in this package; figures of two versions are never mixed."""
