"""A whole command as what is timed: started, waited for, its output thrown away."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence

TOLD = 300
"""Characters at the end of what a failed command wrote."""


class CommandFailed(RuntimeError):
    """The command cannot be started, or ended with another exit code than 0."""


def run(words: Sequence[str]) -> None:
    """Run it once, without a shell; wait until it has ended."""
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                list(words), stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False
            )
        except OSError as error:
            raise CommandFailed(f"{words[0]} cannot be started: {error.strerror}") from None
        if done.returncode:
            said.seek(max(0, said.tell() - TOLD))
            last = said.read(TOLD).decode(errors="replace").strip().splitlines()[-1:]
            more = f": {last[0]}" if last else ""
            raise CommandFailed(f"it ended with exit code {done.returncode}{more}")
