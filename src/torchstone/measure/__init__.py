"""The worker's side: everything that happens in the process that runs the user's code.

Holds: the worker's loop, the timed loops, warm-up, contract, evidence for the reference check,
memory and compile cost. Touches: `records`, `machine`, `workloads`, `variants`; torch only
where the arm has loaded it; never the conductor's libraries, because the interpreter may be
another one.
"""
