"""The doctor's report: what may disturb a measurement here, and whether the machine is fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.machine.doctor.base import split_fix
from torchstone.records import DoctorReport, Finding, Level
from torchstone.records.format import count, format_bytes, format_percent
from torchstone.show.evidence import hang
from torchstone.show.markdown import code, escape, plain, to_text
from torchstone.show.rows import flow, processor_name
from torchstone.show.table import Style, cells, pad

SECTIONS = {
    "Other work": (
        *("processes", "load", "core", "core-speed", "steal"),
        *("pressure-cpu", "pressure-io", "pressure-memory", "accelerator"),
    ),
    "Processor": ("governor", "boost", "smt", "heat", "power", "clock", "virtual"),
    "Limits": ("affinity", "cpu-quota", "throttling", "memory", "swap"),
    "Settings": (
        *("threads", "variables", "allocator", "huge-pages", "address-layout", "perf-events"),
    ),
    "Proof": ("identical", "history", "calibration"),
}
"""What stands where; what a plug-in adds comes after these, under `More`."""
_MORE = "More"
_PROOF = "Proof"
_ROLES = {Level.OK: "good", Level.NOTE: "note", Level.WARN: "warn", Level.FAIL: "fail"}
_LEVEL_WIDTH = 4
_UNSEEN = "cannot be seen here"
_BAD = (Level.FAIL, Level.WARN)
_NO_FIXES = "No command is known that would help."


def doctor_report(
    report: DoctorReport,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    fixes: bool = False,
) -> str:
    """Findings by subject, the commands that would help if asked for, and one last sentence."""
    style = Style(color, unicode)
    head = flow(["doctor", *_machine(report)], width, style)
    lines = [style.paint(head[0], "title"), *_dim((f"  {line}" for line in head[1:]), style)]
    names = max((cells(style.safe(f.name)) for f in report.findings), default=0)
    for title, findings in by_section(report.findings):
        lines += ["", style.paint(f"  {title}", "title")]
        for finding in findings:
            lines += _finding(finding, names, width, style)
    if fixes:
        lines += ["", *_fixes(report, width, style)]
    # The first words of the last sentence say it all.
    first, stop, rest = verdict(report).partition(":" if ":" in verdict(report) else ".")
    last = hang("  ", style.safe(first + stop + rest), width, style)
    levels = {finding.level for finding in report.findings}
    role = next((_ROLES[level] for level in _BAD if level in levels), "good")
    lines += ["", last[0].replace(first, style.paint(first, role), 1), *last[1:]]
    known = sum(len(finding.fixes) for finding in report.findings)
    if known and not fixes:
        said = f"torchstone doctor --fix shows {count(known, 'command')} that would help"
        lines += _dim([f"  {said}"], style)
    return "\n".join(lines) + "\n"


def by_section(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Sections that have findings, each in its own order; unknown names stand before the proof."""
    place = {name: title for title, names in SECTIONS.items() for name in names}
    order = {name: i for names in SECTIONS.values() for i, name in enumerate(names)}
    found: dict[str, list[Finding]] = {title: [] for title in SECTIONS if title != _PROOF}
    found |= {_MORE: [], _PROOF: []}
    for finding in findings:
        found[place.get(finding.name, _MORE)].append(finding)
    return [
        (title, sorted(held, key=lambda f: order.get(f.name, 0)))
        for title, held in found.items()
        if held
    ]


def verdict(report: DoctorReport) -> str:
    """One sentence: fit, fit with care, or not fit, and why."""
    failed = [f for f in report.findings if f.level is Level.FAIL]
    warned = _names(f for f in report.findings if f.level is Level.WARN)
    if failed:
        more = _names(failed)[1:]
        rest = f" (and {_listed(more)})" if more else ""
        return f"Not fit to measure on: {failed[0].message}{rest}."
    smallest = ""
    if report.smallest_detectable is not None:
        least = format_percent(report.smallest_detectable)
        smallest = (
            f" Differences under {least} cannot be seen today in short steps on one thread; longer "
            f"or threaded steps need {_of_longer(report)}."
        )
    if warned:
        return f"Fit with care: {_listed(warned)} may disturb what is measured.{smallest}"
    return f"Fit to measure on.{smallest}"


def _of_longer(report: DoctorReport) -> str:
    """What is known of other steps: the worst of this machine's own history."""
    known = next((f.figures for f in report.findings if f.name == "history"), {})
    if not known:
        return "more"
    kind, worst = max(known.items(), key=lambda one: one[1])
    return f"more: identical arms differed by up to {format_percent(worst)} ({kind})"


def doctor_dumps(report: DoctorReport) -> str:
    """The report and what follows from it, as JSON text."""
    return to_text({**plain(report), "fit": report.fit, "verdict": verdict(report)})


def doctor_markdown(report: DoctorReport, *, fixes: bool = False) -> str:
    """The report as a GitHub table."""
    where = " · ".join(escape(part) for part in _machine(report))
    lines = [f"**doctor** · {where}" if where else "**doctor**", ""]
    lines += ["| | | finding | remedy |", "|---|---|---|---|"]
    for _, findings in by_section(report.findings):
        for f in findings:
            level = f"**{f.level.value}**" if f.level in _BAD else f.level.value
            lines.append(f"| {level} | {code(f.name)} | {escape(f.message)} | {escape(f.remedy)} |")
    if fixes:
        held = _commands(report)
        lines += ["", "Commands that would help (none has been run):" if held else _NO_FIXES]
        for name, (command, does, undo) in held:
            said = f"{escape(does)}; undo: {code(undo)}" if undo else escape(does)
            lines.append(f"- {code(name)}: {code(command)}{f': {said}' if said else ''}")
    lines += ["", f"**{escape(verdict(report))}**"]
    return "\n".join(lines) + "\n"


def _machine(report: DoctorReport) -> list[str]:
    known = report.machine
    cores, allowed = known.get("cores", ""), known.get("allowed_cores", "")
    of = f"{allowed} of {cores} cores" if allowed != cores else f"{cores} cores"
    memory = known.get("memory_bytes", "")
    processor = (processor_name(known.get("cpu", "")), of if cores else "")
    parts = [
        ", ".join(filter(None, processor)),
        format_bytes(int(memory)) if memory.isdigit() and int(memory) else "",
        known.get("system", ""),
        f"Python {known['python']}" if "python" in known else "",
        f"torch {known['torch']}" if "torch" in known else "no torch" if known else "",
    ]
    return [part for part in parts if part]


def _finding(finding: Finding, names: int, width: int, style: Style) -> list[str]:
    level = pad(finding.level.value, _LEVEL_WIDTH)
    lead = f"    {level}  {pad(style.safe(finding.name), names)}  "
    lines = hang(lead, style.safe(finding.message), width, style)
    if finding.level is Level.NOTE and finding.message.startswith(_UNSEEN):
        lines = _dim(lines, style)
    else:
        lines[0] = lines[0].replace(level, style.paint(level, _ROLES[finding.level]), 1)
    if finding.remedy:
        arrow = f"{' ' * cells(lead)}{style.glyphs.arrow} "
        lines += _dim(hang(arrow, style.safe(finding.remedy), width, style), style)
    return lines


def _fixes(report: DoctorReport, width: int, style: Style) -> list[str]:
    held = _commands(report)
    if not held:
        return [style.paint(f"  {_NO_FIXES}", "title")]
    lines = [style.paint("  Commands that would help (none has been run)", "title")]
    before = ""
    for name, (command, does, undo) in held:
        lines += [] if name == before else [f"    {style.safe(name)}"]
        before = name
        # A command is never wrapped: it is there to be copied.
        lines.append(f"      {style.paint(style.safe(command), 'even')}")
        if does:
            lines += _dim(hang("        ", style.safe(does), width, style), style)
        if undo:
            lines += _dim([f"        undo: {style.safe(undo)}"], style)
    return lines


def _dim(lines: Iterable[str], style: Style) -> list[str]:
    return [style.paint(line, "dim") for line in lines]


def _commands(report: DoctorReport) -> list[tuple[str, tuple[str, str, str]]]:
    """The findings' commands, each once and with the name of its finding."""
    held: dict[str, tuple[str, tuple[str, str, str]]] = {}
    for _, findings in by_section(report.findings):
        for finding in findings:
            for line in finding.fixes:
                command = split_fix(line)
                held.setdefault(command[0], (finding.name, command))
    return list(held.values())


def _names(findings: Iterable[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.name for finding in findings))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
