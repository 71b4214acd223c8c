"""`%load_ext torchstone`, then `%torchstone model(x) --vs inductor` or `%%torchstone` on a cell."""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from torchstone.lab.api import BenchResult, bench
from torchstone.lab.session import BUDGET_S
from torchstone.records import UsageError

USAGE = "%torchstone [--vs VARIANT-OR-EXPRESSION ...] [--budget SECONDS] [--threads N] EXPRESSION"


class _Parser(argparse.ArgumentParser):
    """A mistake is a sentence in the cell, not the end of the kernel."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%torchstone: {message}.", f"Write {USAGE}.")


def load(shell: Any) -> None:
    """Make `%torchstone` and `%%torchstone` known to an IPython shell."""

    def torchstone(line: str, cell: str | None = None) -> BenchResult:
        return _line(shell, line) if cell is None else _cell(shell, line, cell)

    torchstone.__doc__ = f"{_line.__doc__}\n\n{_cell.__doc__}\n\n{USAGE}"
    shell.register_magic_function(torchstone, "line_cell", "torchstone")


def _line(shell: Any, line: str) -> BenchResult:
    """`%torchstone model(x) --vs inductor` measures the call; `--vs "other(x)"` another one."""
    options, words = _options(line)
    if not words:
        raise UsageError("%torchstone has nothing to measure.", f"Write {USAGE}.")
    expression = " ".join(words)
    called = _call(shell, expression)
    variants = [word for word in options["vs"] if not _is_call(word)]
    others = [_call(shell, word) for word in options.pop("vs") if _is_call(word)]
    return bench(called, *others, vs=variants, **options)


def _cell(shell: Any, line: str, cell: str) -> BenchResult:
    """`%%torchstone` measures the whole cell, as a function without arguments."""
    options, words = _options(line)
    if words:
        raise UsageError(f"%%torchstone does not take {' '.join(words)!r}.", "Put code below it.")
    variants = options.pop("vs")
    return bench(_function(shell, cell), vs=variants, **options)


def _options(line: str) -> tuple[dict[str, Any], list[str]]:
    parser = _Parser(prog="%torchstone", add_help=False)
    parser.add_argument("--vs", action="append", default=[])
    parser.add_argument("--budget", type=float, default=BUDGET_S)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--mode", default="inference")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--margin", type=float, default=0.02)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--db")
    try:
        # Quotes group words of an option and are part of the expression everywhere else.
        known, words = parser.parse_known_args(shlex.split(line, posix=False))
    except ValueError as error:
        raise UsageError(f"%torchstone cannot read its line: {error}.", f"Write {USAGE}.") from None
    options = vars(known)
    options["vs"] = [word.strip("\"'") for word in options["vs"]]
    return options, words


def _is_call(word: str) -> bool:
    return "(" in word or "[" in word


def _call(shell: Any, expression: str) -> Any:
    """`f(x, y)` as the callable and its inputs, so that variants apply; else a function."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError as error:
        strange = next((word for word in expression.split() if word.startswith("--")), "")
        if strange:
            raise UsageError(f"%torchstone has no option {strange}.", f"Write {USAGE}.") from None
        raise UsageError(
            f"{expression!r} is not an expression: {error.msg}.", "Use %%torchstone on a cell."
        ) from None
    names = shell.user_ns
    plain = isinstance(tree, ast.Call) and not any(
        isinstance(arg, ast.Starred) for arg in tree.args
    )
    if not plain or not isinstance(tree, ast.Call) or any(k.arg is None for k in tree.keywords):
        return _function(shell, f"({expression})")

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<torchstone>", "eval"), names)

    args = tuple(value(arg) for arg in tree.args)
    keywords = {str(k.arg): value(k.value) for k in tree.keywords}
    call = value(tree.func)
    if args and keywords:
        return lambda: call(*args, **keywords)
    return (call, keywords or args)


def _function(shell: Any, source: str) -> Callable[[], Any]:
    """The code as a function over the names of the session; its last expression is its output, so
    that outputs can be compared."""
    try:
        body = ast.parse(source, "<cell>").body
    except SyntaxError as error:
        said = f"The cell is not valid Python: {error.msg} (line {error.lineno})."
        raise UsageError(said) from None
    if not body:
        raise UsageError("%%torchstone has nothing to measure.", "Put code below it.")
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    module = ast.parse("def cell(): pass")
    module.body[0].body = body  # type: ignore[attr-defined]
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(module), "<cell>", "exec"), shell.user_ns, made)
    function: Callable[[], Any] = made["cell"]
    return function
