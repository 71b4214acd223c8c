"""Checkups by name, through entry points, and the examination that runs them all."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import cast

from torchstone.machine.doctor.base import Checkup, View, warn
from torchstone.records import Finding
from torchstone.records.plugins import Registry

CHECKUPS = Registry(
    "torchstone.checkups",
    {
        "accelerator": "torchstone.machine.doctor.checkups.accelerator:ACCELERATOR",
        "address-layout": "torchstone.machine.doctor.checkups.system:LAYOUT",
        "affinity": "torchstone.machine.doctor.checkups.cores:AFFINITY",
        "allocator": "torchstone.machine.doctor.checkups.system:ALLOCATOR",
        "boost": "torchstone.machine.doctor.checkups.cores:BOOST",
        "clock": "torchstone.machine.doctor.checkups.system:CLOCK",
        "core": "torchstone.machine.doctor.checkups.cores:CORE",
        "core-speed": "torchstone.machine.doctor.checkups.cores:CORE_SPEED",
        "cpu-quota": "torchstone.machine.doctor.checkups.system:QUOTA",
        "governor": "torchstone.machine.doctor.checkups.cores:GOVERNOR",
        "heat": "torchstone.machine.doctor.checkups.system:HEAT",
        "huge-pages": "torchstone.machine.doctor.checkups.system:HUGE_PAGES",
        "load": "torchstone.machine.doctor.checkups.cores:LOAD",
        "memory": "torchstone.machine.doctor.checkups.system:MEMORY",
        "perf-events": "torchstone.machine.doctor.checkups.system:PERF_EVENTS",
        "power": "torchstone.machine.doctor.checkups.system:POWER",
        "pressure": "torchstone.machine.doctor.checkups.cores:PRESSURE",
        "processes": "torchstone.machine.doctor.checkups.cores:PROCESSES",
        "smt": "torchstone.machine.doctor.checkups.cores:SIBLINGS",
        "steal": "torchstone.machine.doctor.checkups.cores:STEAL",
        "swap": "torchstone.machine.doctor.checkups.system:SWAP",
        "threads": "torchstone.machine.doctor.checkups.system:THREADS",
        "throttling": "torchstone.machine.doctor.checkups.system:THROTTLING",
        "variables": "torchstone.machine.doctor.checkups.system:VARIABLES",
        "virtual": "torchstone.machine.doctor.checkups.cores:VIRTUAL",
    },
)


def known_checkups() -> tuple[metadata.EntryPoint, ...]:
    """Installed checkups in order of name. Two of one name both run: none is silenced."""
    return CHECKUPS.all()


def examine(view: View) -> tuple[Finding, ...]:
    """Every finding of every installed checkup, in a stable order."""
    findings: list[Finding] = []
    checkups: list[Checkup] = []
    for point in known_checkups():
        try:
            checkups.append(cast("Checkup", point.load()))
        except Exception as error:  # a broken plug-in must not cost the report
            findings.append(_broken(point.name, error, "could not be loaded"))
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
