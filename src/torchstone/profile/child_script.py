"""The process in which a script or a module is profiled: run as Python runs it, under a probe."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from torchstone.machine.processes import die_with_parent
from torchstone.profile.formats.base import write_profile
from torchstone.profile.probes.base import ProbeOptions, choose_probe
from torchstone.profile.probes.count import not_repeated
from torchstone.profile.probes.sample import STARTERS
from torchstone.records import TorchstoneError, from_data

INTERRUPTED = 130
FAILED = ".failed"
"""Ends the name of the file that says why there is no profile."""


@dataclass(frozen=True)
class ScriptRequest:
    """What to run and how to look at it. Without a way it is only run."""

    name: str
    path: str
    parent: int
    arguments: tuple[str, ...] = ()
    module: bool = False
    how: str = ""
    options: ProbeOptions = ProbeOptions()  # noqa: RUF009 - frozen


def run_script(request: ScriptRequest) -> int:
    """Run it; the exit code that Python would give. The profile is written before that."""
    sys.argv = [request.name, *request.arguments]
    where = os.getcwd() if request.module else os.path.dirname(os.path.abspath(request.name))
    sys.path[0] = where
    if not request.how:
        return _run(request)
    probe = choose_probe(request.how, request.options)
    probe.start()
    code = _run(request)
    profile = not_repeated(probe.stop())
    write_profile(replace(profile, steps=0), request.path, "torchstone")
    return code


def _run(request: ScriptRequest) -> int:
    try:
        if request.module:
            runpy.run_module(request.name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(request.name, run_name="__main__")
    except SystemExit as end:
        return _exit_code(end)
    except BaseException as error:
        _show(error)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(end: SystemExit) -> int:
    """As Python does it: a number is the code, anything else is said and means 1."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{end.code}\n")
    return 1


def _show(error: BaseException) -> None:
    """The program's error as its own, without the frames that started it."""
    inner: TracebackType | None = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename in STARTERS:
        inner = inner.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(inner), inner)
    except Exception:  # the program's own hook is broken
        traceback.print_exc()


def main() -> None:
    """The request is in the file that is named."""
    with open(sys.argv[1], encoding="utf-8") as file:
        request = from_data(ScriptRequest, json.load(file))
    die_with_parent(request.parent)
    try:
        code = run_script(request)
    except TorchstoneError as error:  # ours, not the program's: for who started this to say
        Path(request.path + FAILED).write_text(
            json.dumps([error.message, error.remedy]), encoding="utf-8"
        )
        code = error.exit_code
    sys.exit(code)


if __name__ == "__main__":
    main()
