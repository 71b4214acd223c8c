"""Records for people and for other programs: terminal text, Markdown and the public JSON.

Holds: the reports, the listing, the progress line and the number formats. Touches: the stream
it is given for progress, nothing else. Imports `records` and, only when a figure is wanted,
`stats`; every statistic shown is recomputed there from the raw samples.
"""

from torchstone.show.document import DOCUMENT_SCHEMA, document, dumps
from torchstone.show.listing import listing
from torchstone.show.markdown import markdown
from torchstone.show.progress import Progress, make_progress
from torchstone.show.style import can_unicode
from torchstone.show.terminal import report
from torchstone.show.text import sanitise
from torchstone.show.timeit import timeit_report
from torchstone.show.units import format_bytes, format_percent, format_ratio, format_seconds

__all__ = [
    "DOCUMENT_SCHEMA",
    "Progress",
    "can_unicode",
    "document",
    "dumps",
    "format_bytes",
    "format_percent",
    "format_ratio",
    "format_seconds",
    "listing",
    "make_progress",
    "markdown",
    "report",
    "sanitise",
    "timeit_report",
]
