"""What is measured: targets, and the workloads they make.

Holds: `Workload` (a callable, its inputs, its loss), the reading of target names, fresh inputs from
a seed, and the walk through nests of tensors. Touches: `records` only; torch is used where the
target has imported it, so a target without torch needs no torch. These files travel to the worker.
"""

from torchstone.workloads.load import (
    describe_shapes,
    draw,
    draw_at,
    import_libraries,
    is_number_list,
    is_suite_model,
    load_workload,
    map_nest,
    walk,
)
from torchstone.workloads.target import check_target, libraries_ahead, parse_target
from torchstone.workloads.workload import Inputs, Workload, normalise_inputs

__all__ = [
    "Inputs",
    "Workload",
    "check_target",
    "describe_shapes",
    "draw",
    "draw_at",
    "import_libraries",
    "is_number_list",
    "is_suite_model",
    "libraries_ahead",
    "load_workload",
    "map_nest",
    "normalise_inputs",
    "parse_target",
    "walk",
]
