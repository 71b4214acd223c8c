"""What another tool's file says of a case: its own figures, under its own names, as written."""

from __future__ import annotations

from dataclasses import dataclass

FOREIGN_DEFINITION = -1
"""`CaseFigures.definition` of a case that another tool measured. Only its key, its outcome and
`foreign` are set: no figure of another tool stands in a field whose definition is ours."""


@dataclass(frozen=True)
class ForeignFigures:
    """One row about one case, cell for cell, and where it was read.

    `definition` names whose definitions the columns follow (`pytorch-dynamo`), `table` which of
    that tool's tables it is (`performance`, `accuracy`). A row that was cut short has fewer cells
    than columns. `context` is what else the file says about the row, as JSON.
    """

    format: str
    definition: str
    table: str
    source: str
    line: int
    columns: tuple[str, ...]
    cells: tuple[str, ...]
    context: str = ""

    def cell(self, column: str) -> str | None:
        """The text under a column; None where the row has none."""
        return dict(zip(self.columns, self.cells, strict=False)).get(column)
