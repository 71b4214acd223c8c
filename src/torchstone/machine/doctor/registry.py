"""Checkups by name, through entry points, and the examination that runs them all."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import cast

from torchstone.machine.doctor.base import Checkup, View, fail, warn
from torchstone.records import Finding
from torchstone.records.plugins import all_of

ENTRY_POINTS = "torchstone.checkups"


def known_checkups() -> tuple[metadata.EntryPoint, ...]:
    """Installed checkups in order of name. Two of one name both run: none is silenced."""
    return all_of(ENTRY_POINTS)


def examine(view: View) -> tuple[Finding, ...]:
    """Every finding of every installed checkup, in a stable order."""
    findings: list[Finding] = []
    checkups: list[Checkup] = []
    points = known_checkups()
    for point in points:
        try:
            checkups.append(cast("Checkup", point.load()))
        except Exception as error:  # a broken plug-in must not cost the report
            findings.append(_broken(point.name, error, "could not be loaded"))
    if not points:
        findings.append(_none_installed())
    return (*run_checkups(checkups, view), *findings)


def run_checkups(checkups: Iterable[Checkup], view: View) -> tuple[Finding, ...]:
    """The findings in order; a checkup that raises becomes a warning and keeps what it found."""
    findings: list[Finding] = []
    for checkup in checkups:
        try:
            for finding in checkup.look(view):
                if not isinstance(finding, Finding):
                    raise TypeError(f"gave a {type(finding).__name__} instead of a Finding")
                findings.append(finding)
        except Exception as error:  # whatever a plug-in does wrong
            findings.append(_broken(getattr(checkup, "name", repr(checkup)), error, "failed"))
    return tuple(findings)


def _broken(name: str, error: Exception, what: str) -> Finding:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return warn(
        str(name),
        f"this checkup {what} ({said}), so what it looks for was not looked at",
        "Report it to its author, or remove the plug-in.",
    )


def _none_installed() -> Finding:
    """Silence would read as health."""
    return fail(
        "checkups",
        "no checkup is installed, so nothing was looked at",
        "Install Torchstone again: its entry points are missing.",
    )
