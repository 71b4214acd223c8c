"""Statements: compiled into a function like `timeit`'s, setup run anew before each block."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from torchstone.records import Statement, UsageError

_TEMPLATE = """\
def _inner(_it, _timer):
{setup}
    _start = _timer()
    for _i in _it:
{stmt}
    return _timer() - _start
"""


def compile_statement(statement: Statement) -> Callable[[Any, Any], int]:
    """The function to be timed; a `UsageError` with the line for code that does not compile."""
    for what, code in (("setup", statement.setup), ("statement", statement.stmt)):
        try:
            compile(code, f"<{what}>", "exec")
        except SyntaxError as error:
            raise UsageError(
                f"The {what} is not valid Python: {error.msg} (line {error.lineno}).",
                "Quote it for the shell; give several lines as several arguments.",
            ) from None
    source = _TEMPLATE.format(
        setup=textwrap.indent(statement.setup or "pass", " " * 4),
        stmt=textwrap.indent(statement.stmt or "pass", " " * 8),
    )
    names: dict[str, Any] = {}
    try:
        exec(compile(source, "<torchstone timeit>", "exec"), names)
    except SyntaxError as error:
        raise UsageError(f"The statement cannot stand inside a function: {error.msg}.") from None
    inner: Callable[[Any, Any], int] = names["_inner"]
    return inner
