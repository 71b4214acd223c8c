"""The process in which the passes of `explain` run: a worker like any other, with one command more.

Started in the arm's own interpreter, with nothing of ours on its path but the packages that are
sent to it. Deaths, time-outs, missing backends and memory are told as everywhere.
"""

from __future__ import annotations

from typing import Any

from torchstone.explain.passes.report import Plan
from torchstone.measure.worker import Worker
from torchstone.records import ArmSpec, from_data


class ExplainingWorker(Worker):
    """Runs all passes of one arm."""

    def handlers(self) -> dict[str, Any]:
        """What can be asked of it."""
        return {**super().handlers(), "explain": self._explain}

    def _explain(self, command: dict[str, Any]) -> Any:
        from torchstone.explain.passes.run import run_passes

        arm, plan = from_data(ArmSpec, command["arm"]), from_data(Plan, command["plan"])
        return run_passes(arm, plan, self.phase)
