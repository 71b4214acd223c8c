"""The passes of `torchstone explain`: one built arm, looked at in several ways in one process.

Holds: the unprofiled pass, the trace, what tracing and an op's front end cost, where the thread
blocks, and what the compiler made. Touches: torch, when the arm has brought it. Travels to the
arm's interpreter beside the packages that are, so at import it needs the standard library alone.
"""
