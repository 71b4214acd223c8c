"""Other tools' files, in and out.

Holds: what a format is, how one is found (entry points of the group `torchstone.formats`), and
the PyTorch project's own two: `dynamo-csv`, the tables of its benchmark runner, and `hud-v3`, the
records of its benchmark database. Touches: the files it is given, for reading; `records`. Their
figures keep their definitions and their names: none is ever put into a field of ours.
"""

from torchstone.interop.base import FORMATS, Format, Imported, Medians, find_format
from torchstone.interop.rows import medians_of

__all__ = ["FORMATS", "Format", "Imported", "Medians", "find_format", "medians_of"]
