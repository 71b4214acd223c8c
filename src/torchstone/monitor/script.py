"""The process in which a script is monitored: run as Python runs it, with an open monitor."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from torchstone.machine.processes import die_with_parent
from torchstone.monitor.session import Monitor
from torchstone.profile.child_script import ScriptRequest, run_script
from torchstone.records import TorchstoneError, from_data

FAILED = 2


@dataclass(frozen=True)
class MonitoredScript:
    """What to run, and how the monitor is called."""

    script: ScriptRequest
    id: str
    name: str
    folder: str
    sinks: tuple[str, ...] = ()


def run_monitored(request: MonitoredScript) -> int:
    """Run it; the exit code that Python would give."""
    opened = Monitor(
        request.name,
        sinks=request.sinks,
        folder=request.folder,
        ident=request.id,
        auto=True,
        command=" ".join([request.script.name, *request.script.arguments]),
    )
    with opened:
        code = run_script(request.script)
        if code:
            opened.close(f"exit code {code}")
    return code


def main() -> None:
    """The request is in the file that is named."""
    with open(sys.argv[1], encoding="utf-8") as file:
        request = from_data(MonitoredScript, json.load(file))
    die_with_parent(request.script.parent)
    try:
        code = run_monitored(request)
    except TorchstoneError as error:  # ours, not the program's
        sys.stderr.write(f"torchstone: {error.message}\n  {error.remedy}\n")
        code = FAILED
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
