"""Reports as the text that a terminal and a comment get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.show import check, comparison, regressions, run, tune
from torchstone.show.blocks import Report, render, to_markdown


def _texts(make: Callable[..., Report]) -> tuple[Callable[..., str], Callable[..., str]]:
    def terminal(
        *args: Any, color: bool = False, width: int = 100, unicode: bool = True, **more: Any
    ) -> str:
        return render(make(*args, **more), color=color, width=width, unicode=unicode)

    def markdown(*args: Any, **more: Any) -> str:
        return to_markdown(make(*args, **more))

    return terminal, markdown


check_report, _ = _texts(check.check_report)
compare_report, compare_markdown = _texts(comparison.compare_report)
regressions_report, regressions_markdown = _texts(regressions.regressions_report)
run_report, run_markdown = _texts(run.run_report)
tune_report, tune_markdown = _texts(tune.tune_report)
