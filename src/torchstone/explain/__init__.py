"""Where the time goes: from a stored measurement to what limits it.

Holds: the roofline (what a step and its heaviest ops reach of the machine's calibrated peaks).
Touches: nothing; records in, records out. Imports `records`, `stats` and, from `validate`, which
peaks are sound.
"""

from torchstone.explain.roofline import Ceiling, Point, Roofline, roofline

__all__ = ["Ceiling", "Point", "Roofline", "roofline"]
