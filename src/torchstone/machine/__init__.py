"""What this machine is and what happens on it: fingerprint, noise, memory, processes.

Holds: the environment record and the rules that keep secrets out of it; noise counters and the
probe; memory and page faults; processes, interpreters and allocators. Touches: the standard
library, the system's own files and `records`; never torch (it is described only if the process
has imported it already). These files travel to the worker.
"""

from torchstone.machine.interpreters import known_interpreters, resolve_interpreter
from torchstone.machine.memory import (
    allocator_environment,
    fault_cost_ns,
    major_faults,
    minor_faults,
    peak_bytes,
    reset_peak,
    rss_bytes,
    step_peak,
    trim,
    usual_allocator,
    why_not_kept,
)
from torchstone.machine.noise import NoiseSnapshot, Probe, difference, make_probe, snapshot
from torchstone.machine.processes import (
    die_with_parent,
    kill_tree,
    memory_available,
    oom_kills,
    tagged_processes,
    thread_run_ns,
    wait_until_quiet,
)
from torchstone.machine.redact import hidden_variables, redact_text, tail, visible_variables
from torchstone.machine.software import describe_environment, loaded_allocator, machine_id

__all__ = [
    "NoiseSnapshot",
    "Probe",
    "allocator_environment",
    "describe_environment",
    "die_with_parent",
    "difference",
    "fault_cost_ns",
    "hidden_variables",
    "kill_tree",
    "known_interpreters",
    "loaded_allocator",
    "machine_id",
    "major_faults",
    "make_probe",
    "memory_available",
    "minor_faults",
    "oom_kills",
    "peak_bytes",
    "redact_text",
    "reset_peak",
    "resolve_interpreter",
    "rss_bytes",
    "snapshot",
    "step_peak",
    "tagged_processes",
    "tail",
    "thread_run_ns",
    "trim",
    "usual_allocator",
    "visible_variables",
    "wait_until_quiet",
    "why_not_kept",
]
