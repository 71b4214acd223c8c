"""The command line: parse, call `lab`, print.

Holds: one small file a command and what they share. Touches: standard streams, exit codes.
`main` alone answers `--help`, from a table and without imports, so it is as quick as Python is;
click is imported when a command is named, `lab` when it runs.
"""

from torchstone.cli.main import main

__all__ = ["main"]
