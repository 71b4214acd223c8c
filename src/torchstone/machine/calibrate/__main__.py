"""`python -m torchstone.machine.calibrate`: a calibration for another process to read.

One JSON object a line on the standard output: `{"say": ...}` while it goes on, and at the end
`{"calibration": ...}` or `{"error": [sentence, remedy]}`. What libraries print goes to the standard
error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import IO, Any

from torchstone.machine.calibrate.request import first_line
from torchstone.machine.calibrate.whole import calibrate
from torchstone.machine.processes import die_with_parent
from torchstone.records import UsageError, to_data


def main(words: list[str] | None = None) -> int:
    """Calibrate as the command line asks."""
    args = _parser().parse_args(words)
    if args.parent:
        die_with_parent(args.parent)
    with _own_output() as out:

        def tell(name: str, value: Any) -> None:
            out.write(json.dumps({name: value}) + "\n")
            out.flush()

        try:
            found = calibrate(
                args.device,
                args.threads,
                args.dtypes,
                args.seconds,
                lambda line: tell("say", line),
                [_roof(word) for word in args.only] if args.only is not None else None,
            )
        except UsageError as error:
            tell("error", [error.message, error.remedy])
            return error.exit_code
        except Exception as error:  # torch fails to load in as many ways as there are libraries
            tell("error", [f"{type(error).__name__}: {first_line(error)}", ""])
            raise
        tell("calibration", to_data(found))
    return 0


@contextlib.contextmanager
def _own_output() -> Any:
    """The standard output for us alone; what others print goes to the standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    out: IO[str] = os.fdopen(kept, "w", encoding="utf-8")
    with out:
        yield out


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torchstone.machine.calibrate",
        description="Measure what this machine can do.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="always so: one object a line")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, nargs="+")
    parser.add_argument("--dtypes", nargs="+")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", nargs="+", metavar="ROOF:THREADS", help="such as fp32:1 DRAM:2")
    parser.add_argument("--parent", type=int, help="end when this process does")
    return parser


def _roof(word: str) -> tuple[str, int]:
    name, _, threads = word.partition(":")
    if not threads.isdigit():
        raise UsageError(f"{word!r} names no peak.", "Write it as fp32:1 or DRAM:2.")
    return name, int(threads)


if __name__ == "__main__":
    sys.exit(main())
