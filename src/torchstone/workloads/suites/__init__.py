"""Suites: models by name, built with random weights, at full or small scale.

Holds: what a suite is, how one is found (entry points of the group `torchstone.suites`, named by
the prefix of its targets), and the built-in ones. Listing a suite's models imports neither torch
nor the suite's library; `build` runs in the worker. Touches: `records` and the rest of
`workloads`; a built-in suite's library is imported inside `build` alone.
"""

from torchstone.workloads.suites.base import (
    SUITES,
    BuildSetting,
    ModelInfo,
    Suite,
    find_suite,
    known_suites,
    load_suite,
    load_suites,
)

__all__ = [
    "SUITES",
    "BuildSetting",
    "ModelInfo",
    "Suite",
    "find_suite",
    "known_suites",
    "load_suite",
    "load_suites",
]
