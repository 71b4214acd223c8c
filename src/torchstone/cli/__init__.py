"""The command line: parse, call `lab`, print.

Holds: one small file a command and what they share. Touches: standard streams, exit codes.
Importing it imports click and nothing heavier, so `--help` is quick; `lab` is imported when a
command runs.
"""

from torchstone.cli.main import main

__all__ = ["main"]
