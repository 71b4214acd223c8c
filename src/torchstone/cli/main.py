"""The entry point: knows the commands by name and sentence, imports nothing until one is named."""

from __future__ import annotations

import gc
import sys

from torchstone import __version__

SECTIONS = {
    "Measure": {
        "bench": "Measure targets, compare variants.",
        "timeit": "Time a statement, as `python -m timeit` does.",
        "run": "Run suites of models: eager against compiled.",
        "scaling": "Train over several ranks: efficiency, communication.",
        "doctor": "Check whether this machine is suitable for benchmarking.",
    },
    "Check": {
        "check": "Check whether a change makes anything slower.",
        "validate": "Re-run the checks on stored results.",
        "contract": "Record a target's input/output contract; verify it later.",
        "repro": "Measure a stored result again; compare with the old.",
    },
    "Explain": {
        "profile": "Profile the time or memory of a step or program.",
        "explain": "Break down where a step's time goes and suggest fixes.",
        "tune": "Find what makes a target faster, and prove it.",
    },
    "Watch": {
        "monitor": "Watch a training while it runs; compare two trainings.",
        "top": "Show what is monitored on this machine, live.",
    },
    "Track and show": {
        "show": "Show a stored result, run, profile, ledger, tuning or scaling.",
        "list": "List what is stored, and suites, models, variants.",
        "compare": "Compare two stored runs.",
        "history": "Show stored figures over time, with changes of level.",
        "regressions": "List changes of level: since when, how large, whose doing.",
        "bisect": "Find the commit that changed a target's time.",
        "serve": "Show stored runs as a dashboard in the browser.",
        "export": "Write a run as the PyTorch project's files, or a site.",
        "import": "Read other tools' files; join shards.",
        "push": "Send a run to a `serve --accept-pushes`.",
        "token": "Create, list and revoke tokens for pushes.",
        "db": "Show database size; prune samples; rebuild derived tables.",
    },
}

OBJECTS = 50_000
"""Objects made before rings of them are looked for. Python looks after every 700, which is a tenth
of the time of a command that imports much or reads many records; neither makes rings."""

_TOP = """\
Usage: torchstone COMMAND [OPTIONS] [ARGUMENTS]

  Torchstone tells true PyTorch performance from false.

  Examples:
    torchstone bench model.py:make --vs inductor
    torchstone bench old.py:make new.py:make --budget 60s
    torchstone run timm --variants inductor,aot_eager
    torchstone timeit -s "x = list(range(1000))" "sorted(x)"
    torchstone show last
"""
_BOTTOM = """
Options:
  -V, --version  Show the version and exit.
  -h, --help     Show this message and exit; `torchstone COMMAND --help` for a command.
"""


def main() -> None:
    """Answer what needs no command, else hand over to click."""
    first = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if first in ("-h", "--help"):
        sys.stdout.write(help_text())
    elif first in ("-V", "--version"):
        sys.stdout.write(f"torchstone {__version__}\n")
    else:
        gc.set_threshold(OBJECTS)
        from torchstone.cli.app import run

        sys.exit(run())


def help_text() -> str:
    """Commands under headings, in the order a newcomer needs them."""
    width = max(len(name) for commands in SECTIONS.values() for name in commands)
    parts = [_TOP]
    for title, commands in SECTIONS.items():
        parts.append(f"\n{title}:\n")
        parts += [f"  {name:<{width}}  {sentence}\n" for name, sentence in commands.items()]
    return "".join([*parts, _BOTTOM])
