"""No escape sequence of anybody else reaches a terminal, by any command or message.

A pipe would hide it: click takes colours out there. So all of it runs under a pseudo-terminal, in
one process that takes command lines from a file.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.test_histories import write_asv
from tests.monitor.test_compare import training
from tests.show.test_check import REPORT
from tests.targets.support import ROOT
from tests.web.stored import make_hostile
from torchstone.cli import app
from torchstone.cli.main import SECTIONS
from torchstone.monitor.journal import VARIABLE, encode
from torchstone.records import Revision
from torchstone.records.monitoring import MonitorEvent, MonitorLevel
from torchstone.show.check import check_dumps
from torchstone.show.table import COLOUR_CODES, Style, mark_colours, unmarked

COMMANDS = [name for names in SECTIONS.values() for name in names]
EVIL = "\x1b]0;renamed\x07\x1b[31mred\x9b2J\x1b[8m\u202eturned\rback"
WORDS = {
    **{name: [[EVIL], ["last", "--db", EVIL], [f"--{EVIL}"], [EVIL, EVIL]] for name in COMMANDS},
    "top": [[EVIL], ["--once", "--db", EVIL], [f"--{EVIL}"], [EVIL, EVIL]],
    "timeit": [[EVIL, "--no-such"], ["-s", EVIL, "--clock", EVIL]],
    "doctor": [[EVIL], ["--db", EVIL, f"--{EVIL}"]],
    # A database that is not there yet is made, and then it is served: this one cannot be.
    "serve": [["--host", EVIL], ["--port", EVIL], ["--db", f"/proc/{EVIL}"]],
    "import": [[EVIL], ["hud-v3", EVIL], ["dynamo-csv", EVIL], [EVIL, EVIL]],
    "export": [[EVIL, EVIL], ["last", "--format", EVIL], ["last", "--format", "site", EVIL]],
    "db": [["size", "--db", EVIL], ["prune", "--db", EVIL], ["rebuild", "--db", EVIL], [EVIL]],
    "list": [["--db", EVIL], [EVIL], ["-n", EVIL]],
    "contract": [["write", EVIL], ["check", EVIL], [EVIL]],
}
READING = [
    ["list"],
    ["list", "runs"],
    ["show", "last"],
    ["show", "evil0"],
    ["show", "evilresult"],
    ["show", "evilresult", "--markdown"],
    ["validate", "evilresult"],
    ["compare", "evil0", "evil1"],
    ["repro", "evilresult"],
    ["export", "evil0"],
    ["db", "size"],
]
DRIVER = """
import json, os, sys
from torchstone.cli.app import run
for words in json.load(open(sys.argv[1])):
    sys.argv = ["torchstone", *words]
    try:
        run()
    except BaseException as error:
        import traceback
        traceback.print_exc()
"""
OURS = re.compile("\x1b\\[(?:0|{})m".format("|".join(map(re.escape, COLOUR_CODES))))
PROGRESS = re.compile("\r[^\r\x1b]*\x1b\\[K|\r\n")


def on_terminal(lines: list[list[str]], folder: Path) -> str:
    """What a terminal gets of these command lines."""
    script = folder / "lines.json"
    script.write_text(json.dumps(lines))
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "HOME": str(folder)}
    env.pop("NO_COLOR", None)
    env[VARIABLE] = str(folder / "monitors")
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=env,
    )
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # how a pseudo-terminal ends
        pass
    os.close(ours)
    process.wait()
    return b"".join(parts).decode()


def foreign(text: str) -> list[str]:
    """What is neither text nor ours, with a little of what is around it. A colour may be ours, but
    not before the word that `EVIL` has there."""
    if "\x1b[31mred" in text:
        return [text[max(0, text.index("\x1b[31mred") - 60) :][:80]]
    rest = PROGRESS.sub("\n", OURS.sub("", text))
    found = re.finditer("[^\n\t\x20-\x7e\u00a0-\u200a\u2010-\u2027\u2030-\uffff]", rest)
    return [rest[max(0, one.start() - 60) : one.end() + 10] for one in found]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile(tmp_path_factory.mktemp("gate") / "hostile.db")


def test_names_on_the_command_line(tmp_path: Path) -> None:
    lines = [[name, *words] for name in COMMANDS for words in WORDS[name]]
    text = on_terminal(lines, tmp_path)
    assert foreign(text) == []
    assert text.count("\\x1b") >= len(COMMANDS)  # they were named, as escapes
    assert "Traceback" not in text


@pytest.mark.slow
def test_a_file_with_such_a_name_and_such_lines(tmp_path: Path) -> None:
    (tmp_path / f"{EVIL.replace('/', '')}.py").write_text("x = 1\n")
    (tmp_path / "raises.py").write_text(f"def make():\n    raise ValueError({EVIL!r})\n")
    (tmp_path / "suite.toml").write_text('[[model]]\nname = "\\u001b[31m"\ntarget = "no.py:make"\n')
    (tmp_path / "rows.csv").write_text(f"dev,name,{EVIL}\n1,2,3\n")
    (tmp_path / "profile.json").write_text(json.dumps({"shared": {"frames": EVIL}, EVIL: EVIL}))
    lines = [
        ["run", "suite.toml", "--db", "x.db"],
        ["import", "dynamo-csv", "rows.csv", "--db", "x.db"],
        ["import", "hud-v3", "profile.json", "--db", "x.db"],
        ["show", "profile.json", "--db", "x.db"],
        ["tune", "raises.py:make", "--no-save", "--budget", "1s", "--db", "x.db"],
        ["bench", "raises.py:make", "--no-save", "--budget", "0.1s", "--db", "x.db"],
    ]
    text = on_terminal(lines, tmp_path)
    assert foreign(text) == []
    assert "\\x1b" in text


def test_a_hostile_database(hostile: Path, tmp_path: Path) -> None:
    text = on_terminal([[*words, "--db", str(hostile)] for words in READING], tmp_path)
    assert foreign(text) == []


def test_reports_of_checks_histories_and_monitors(tmp_path: Path) -> None:
    for place, name in enumerate("ab"):
        folder = tmp_path / "monitors" / name
        training(folder, 40, seed=place)
        event = MonitorEvent(1005.0, 3, EVIL, MonitorLevel.WARN, EVIL, EVIL, EVIL)
        file = next(folder.glob("rank*"))
        whole = file.read_text().replace(json.dumps(name), json.dumps(EVIL + name), 2)
        file.write_text(whole + encode(event) + "\n")
    one = replace(REPORT.targets[0], target=EVIL, file=EVIL, reason=EVIL)
    base = Revision("a" * 40, EVIL, EVIL)
    evil = replace(REPORT, base=base, targets=(one,), machine=EVIL, command=(EVIL,))
    (tmp_path / "check.json").write_text(check_dumps(evil, 1))
    tree = write_asv(tmp_path)
    for path in tree.rglob("*.json"):
        text = path.read_text().replace("suite.time_sort", json.dumps(EVIL)[1:-1])
        path.write_text(text.replace('"0000', json.dumps(f"{EVIL}0000")[:-1]))
    db = ["--db", "x.db"]
    lines = [
        *(["monitor", *words] for words in (["list"], ["show", "a"], ["compare", "a", "b"])),
        ["top", "--once", "--all"],
        *(["check", "--from", "check.json", *more] for more in ([], ["--markdown"])),
        ["import", "asv", str(tree), "--project", EVIL, *db],
        *(["history", *more, *db] for more in ([], ["--markdown"], [EVIL])),
        *(["regressions", *more, *db] for more in ([], ["--format", "markdown"], ["--mute", EVIL])),
        ["regressions", "--format", "github-issue", *db],
        ["bisect", EVIL, EVIL, EVIL, *db],
        ["tune", "--resume", EVIL, *db],
    ]
    text = on_terminal(lines, tmp_path)
    assert foreign(text) == []
    assert text.count("renamed") > 2 * len(lines)  # they are shown, as escapes
    assert "Traceback" not in text


@pytest.mark.slow
def test_a_database_in_which_any_text_may_be_anything(hostile: Path, tmp_path: Path) -> None:
    """Each column of each table in turn: most of it damages the database, which is a message."""
    with sqlite3.connect(hostile) as opened:
        tables = [
            row[0] for row in opened.execute("select name from sqlite_master where type='table'")
        ]
        columns = [
            (table, row[1])
            for table in tables
            for row in opened.execute(f"pragma table_info('{table}')")
            if "CHAR" in row[2].upper() or "TEXT" in row[2].upper()
        ]
    opened.close()
    assert len(columns) > 20
    lines = []
    for place, (table, column) in enumerate(columns):
        copy = tmp_path / f"{place}.db"
        shutil.copy(hostile, copy)
        changed = sqlite3.connect(copy)
        try:
            changed.execute(f"update or ignore '{table}' set '{column}' = ?", (EVIL,))
            changed.commit()
        except sqlite3.Error:
            pass  # a rule of the table forbids it
        changed.close()
        shown = (
            *(["list"], ["show", "evil0"], ["compare", "evil0", "evil1"], ["show", "evilresult"]),
            *(["history"], ["regressions"], ["list", "runs"]),
        )
        lines += [[*words, "--db", str(copy)] for words in shown]
    assert foreign(on_terminal(lines, tmp_path)) == []


def test_the_gate_lets_our_colours_through_and_nothing_else() -> None:
    made = Style(color=True).paint("red", "bad")
    mark_colours(app._SECRET)
    try:
        ours = Style(color=True).paint("red", "bad")
        assert app.harmless(f"{ours}\n\tµ") == f"{made}\n\tµ" == "\x1b[31mred\x1b[0m\n\tµ"
        assert app.harmless(made) == "\\x1b[31mred\\x1b[0m"  # as in a name
        assert unmarked(ours) == made
    finally:
        mark_colours("\x1b[")
    assert app.harmless("\x1b[8mhidden\x1b[K\r") == "\\x1b[8mhidden\\x1b[K\\r"


def test_what_a_look_at_the_output_would_find() -> None:
    assert foreign("\x1b[31mred")
    assert foreign("\x1b[31mslow\x1b[0m \r[##] 10 %\x1b[K\r\n") == []
    assert len(foreign("\x1b]0;x\x07")) == 2
    assert foreign("a\u202eb")
