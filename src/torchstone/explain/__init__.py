"""Where a step's time goes, what would help, and what limits it.

Holds: the passes that look at a step in a worker of their own, the ledger made from them, findings
with their predictions, and the roofline of a stored measurement. Touches: the worker that runs the
passes (`ledger`); all the rest is records in, records out.
"""

from torchstone.explain.roofline import Ceiling, Point, Roofline, roofline

__all__ = ["Ceiling", "Point", "Roofline", "roofline"]
