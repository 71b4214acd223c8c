"""The doctor's report for people, for notes and for other programs."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace

from tests.structure.places import ROOT
from torchstone.machine.doctor import fix
from torchstone.records import DoctorReport, Estimate, Finding, Level, from_data
from torchstone.show.doctor import (
    SECTIONS,
    by_section,
    doctor_dumps,
    doctor_markdown,
    doctor_report,
    verdict,
)
from torchstone.show.table import cells

GOVERNOR = Finding(
    "governor",
    Level.WARN,
    "powersave on 2 of 2 cores: the clock follows the load, so short work runs slower than long",
    {"cores": 2.0},
    "Set the governor to performance while you measure.",
    (fix("sudo cpupower frequency-set -g performance", "holds the clock", "sudo undo -g x"),),
)
CALM = Finding("load", Level.OK, "0.10 tasks wanted 2 cores over the last minute", {"load": 0.1})
UNSEEN = Finding("heat", Level.NOTE, "cannot be seen here: no temperatures are shown")
THROTTLED = Finding("throttling", Level.FAIL, "held back 3 times while watched", {}, "Raise it.")
PLUGGED = Finding("my-own", Level.OK, "what a plug-in looks at is fine")
PROVEN = Finding("identical", Level.OK, "two identical programs differ by 0.1 %")


def made(*findings: Finding, smallest: float | None = 0.013) -> DoctorReport:
    return DoctorReport(
        id="d1",
        machine_id="m1",
        created="2026-11-16T10:00:00+00:00",
        findings=findings,
        identical=Estimate("low1", 1.001, (0.99, float("inf")), 0.95, 4),
        smallest_detectable=smallest,
        machine={
            "cpu": "Some(R) CPU @ 3.1GHz",
            "cores": "4",
            "allowed_cores": "2",
            "memory_bytes": str(8 << 30),
            "python": "3.11.7",
        },
    )


LEVELS = {level.value for level in Level}
ALL = made(PROVEN, PLUGGED, UNSEEN, GOVERNOR, CALM)


def test_the_last_sentence_says_whether_it_is_fit_and_why() -> None:
    assert verdict(made(CALM, UNSEEN)) == (
        "Fit to measure on. Differences under 1.3 % cannot be seen today in short steps on one "
        "thread; longer or threaded steps need more."
    )
    figures = {"1 thread, 1-10 ms": 0.004, "2 threads, 10-100 ms": 0.06}
    seen = Finding("history", Level.OK, "known", figures)
    assert verdict(made(CALM, seen)).endswith(
        "need more: identical arms differed by up to 6.0 % (2 threads, 10-100 ms)."
    )
    two = made(CALM, GOVERNOR, replace(GOVERNOR, name="swap"), GOVERNOR, smallest=None)
    assert verdict(two) == "Fit with care: governor and swap may disturb what is measured."
    bad = made(GOVERNOR, THROTTLED, replace(THROTTLED, name="swap"))
    assert verdict(bad) == "Not fit to measure on: held back 3 times while watched (and swap)."
    assert not bad.fit
    for report in (made(CALM), two, bad):
        last = doctor_report(report, fixes=True).rstrip("\n").splitlines()[-1]
        assert verdict(report).endswith(last.strip())


def test_every_finding_stands_in_line_with_its_remedy() -> None:
    text = doctor_report(ALL)
    rows = {row.split()[1]: row for row in text.splitlines() if row[:8].strip() in LEVELS}
    starts = {rows[f.name].index(f.message[:12]) for f in ALL.findings}
    assert len(starts) == 1
    for finding in ALL.findings:
        assert rows[finding.name].split()[0] == finding.level.value
    assert f"{' ' * starts.pop()}→ Set the governor to performance" in text
    titles = [line.strip() for line in text.splitlines() if re.match(r"  [A-Z]\w+( \w+)?$", line)]
    assert titles == ["Other work", "Processor", "More", "Proof"]
    assert "2 of 4 cores" in text
    assert "no torch" in text


def test_no_line_is_wider_than_the_terminal_and_ascii_is_ascii() -> None:
    text = doctor_report(ALL, width=60, unicode=False)
    assert text.isascii()
    assert max(cells(line) for line in text.splitlines()) <= 60


def test_colours_only_where_asked_for() -> None:
    assert "\x1b[" not in doctor_report(ALL)
    coloured = doctor_report(ALL, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == doctor_report(ALL)
    assert "\x1b[33mwarn\x1b[0m" in coloured
    assert "\x1b[1;31mNot fit to measure on\x1b[0m" in doctor_report(made(THROTTLED), color=True)


def test_commands_are_shown_only_when_asked_for_and_whole() -> None:
    assert "sudo" not in doctor_report(ALL)
    assert "--fix shows 1 command that would help" in doctor_report(ALL)
    lines = doctor_report(ALL, width=30, fixes=True).splitlines()
    assert "      sudo cpupower frequency-set -g performance" in lines
    assert "        undo: sudo undo -g x" in lines
    assert any("none has been run" in line for line in lines)
    assert "No command is known" in doctor_report(made(CALM), fixes=True)


def test_the_same_command_is_shown_once() -> None:
    twice = made(GOVERNOR, replace(GOVERNOR, name="boost"))
    assert doctor_report(twice, fixes=True).count("frequency-set -g performance") == 1


def test_text_from_outside_cannot_move_the_cursor_or_become_markup() -> None:
    nasty = Finding("x\x1b[2J", Level.WARN, "a\x1b[1m | <b>**z**", {}, "no\nway")
    report = made(nasty)
    assert "\x1b" not in doctor_report(report)
    table = doctor_markdown(report)
    (row,) = [line for line in table.splitlines() if line.startswith("| **warn**")]
    assert row.count("|") == 5
    assert "<b>" not in table
    assert "**z**" not in table


def test_the_markdown_has_every_finding_and_the_sentence() -> None:
    text = doctor_markdown(ALL, fixes=True)
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + 5
    assert "| **warn** | `governor` |" in text
    assert "`sudo cpupower frequency-set -g performance`" in text
    assert text.rstrip().endswith("**")


def test_the_json_is_the_whole_record_and_strict() -> None:
    document = json.loads(doctor_dumps(ALL), parse_constant=lambda name: 1 / 0)
    assert document["fit"] is True
    assert document["verdict"] == verdict(ALL)
    assert document["identical"]["interval"] == [0.99, None]
    finite = replace(ALL, identical=None)
    data = json.loads(doctor_dumps(finite))
    del data["fit"], data["verdict"]
    assert from_data(DoctorReport, data) == finite


def test_every_key_of_the_json_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    body = page.split("## The doctor's report\n")[1].split("\n## ")[0]
    keys = {*json.loads(doctor_dumps(ALL)), *(field.name for field in fields(Finding))}
    assert [key for key in sorted(keys) if f"`{key}`" not in body] == []


def test_every_built_in_finding_has_a_place() -> None:
    known = {name for names in SECTIONS.values() for name in names}
    page = (ROOT / "docs" / "how-to" / "doctor.md").read_text(encoding="utf-8")
    assert [name for name in sorted(known) if f"`{name}`" not in page] == []
    assert [title for title, _ in by_section(ALL.findings)][-1] == "Proof"
