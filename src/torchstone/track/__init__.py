"""Stored runs over time: two of them set against each other, and how they are named.

Holds: `compare` (two runs, case by case, or why they cannot be compared), what the words BASE and
NEW mean, runs read back from their own JSON, and the floors that verdicts are held to. Touches:
the store and the files it is given, for reading only. Imports `records`, `stats`, `store` and
`interop`; knows nothing of `show`. The one implementation behind the command, the page and the
gate.
"""

from torchstone.track.compare import (
    DEFAULT_AA_FLOOR,
    Floors,
    compare,
    default_floors,
    stored_floors,
)
from torchstone.track.resolve import Found, is_file, resolve, stored_heads, stored_side
from torchstone.track.terms import ACROSS, Side, Terms, side_of

__all__ = [
    "ACROSS",
    "DEFAULT_AA_FLOOR",
    "Floors",
    "Found",
    "Side",
    "Terms",
    "compare",
    "default_floors",
    "is_file",
    "resolve",
    "side_of",
    "stored_floors",
    "stored_heads",
    "stored_side",
]
