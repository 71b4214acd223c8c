"""Records for people and for other programs: terminal text, Markdown, pages and the public JSON.

Holds: the reports of a result and of a run, the listings, the progress lines, the CSV, the
stand-alone page of a profile (its scripts and styles are in `assets`) and the number formats.
Touches: the stream it is given for progress, nothing else. Imports `records`, how trees are built
from `profile` and, only when a figure is wanted, `stats`; every statistic shown is computed there.
"""

from torchstone.records.format import format_bytes, format_percent, format_ratio, format_seconds
from torchstone.show.comparison import compare_markdown, compare_report
from torchstone.show.evidence import evaluation_report
from torchstone.show.ledger import (
    difference_markdown,
    difference_report,
    ledger_document,
    ledger_dumps,
    ledger_markdown,
    ledger_report,
)
from torchstone.show.listing import listing
from torchstone.show.listings import (
    ModelRow,
    SuiteRow,
    VariantRow,
    ledgers_listing,
    models_listing,
    profiles_listing,
    runs_listing,
    suites_listing,
    variants_listing,
)
from torchstone.show.markdown import DOCUMENT_SCHEMA, document, dumps, markdown
from torchstone.show.profile_html import profile_html
from torchstone.show.profile_svg import profile_svg
from torchstone.show.profile_text import profile_text
from torchstone.show.progress import Progress, RunProgress, make_progress, make_run_progress
from torchstone.show.roofline import (
    roofline_document,
    roofline_dumps,
    roofline_report,
    roofline_svg,
)
from torchstone.show.run import run_markdown, run_report
from torchstone.show.run_data import (
    compare_csv,
    compare_document,
    compare_dumps,
    run_csv,
    run_document,
    run_dumps,
)
from torchstone.show.table import can_unicode, sanitise
from torchstone.show.terminal import report
from torchstone.show.timeit import passed_checks, timeit_report

__all__ = [
    "DOCUMENT_SCHEMA",
    "ModelRow",
    "Progress",
    "RunProgress",
    "SuiteRow",
    "VariantRow",
    "can_unicode",
    "compare_csv",
    "compare_document",
    "compare_dumps",
    "compare_markdown",
    "compare_report",
    "difference_markdown",
    "difference_report",
    "document",
    "dumps",
    "evaluation_report",
    "format_bytes",
    "format_percent",
    "format_ratio",
    "format_seconds",
    "ledger_document",
    "ledger_dumps",
    "ledger_markdown",
    "ledger_report",
    "ledgers_listing",
    "listing",
    "make_progress",
    "make_run_progress",
    "markdown",
    "models_listing",
    "passed_checks",
    "profile_html",
    "profile_svg",
    "profile_text",
    "profiles_listing",
    "report",
    "roofline_document",
    "roofline_dumps",
    "roofline_report",
    "roofline_svg",
    "run_csv",
    "run_document",
    "run_dumps",
    "run_markdown",
    "run_report",
    "runs_listing",
    "sanitise",
    "suites_listing",
    "timeit_report",
    "variants_listing",
]
