"""What this machine is and what happens on it: fingerprint, noise, memory, processes.

Holds: the environment record and the rules that keep secrets out of it; noise counters and the
probe; memory and page faults; processes, interpreters and allocators. Touches: the standard
library, the system's own files and `records`; never torch (it is described only if the process
has imported it already). These files are sent to the worker.
"""

from torchstone.machine.software import loaded_allocator, machine_id

__all__ = ["loaded_allocator", "machine_id"]
