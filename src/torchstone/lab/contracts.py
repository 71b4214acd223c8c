"""`torchstone contract`: write down what a target promises, and hold it to that later."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torchstone
from torchstone.conductor import Events
from torchstone.conductor.check_outputs import compare_leaves, gradients_change, may_differ
from torchstone.conductor.run import Inspection, inspect_arms
from torchstone.lab.output_files import ANOTHER, writable, write_file
from torchstone.lab.request import BenchRequest, check_settings, make_arms
from torchstone.lab.secrets import public_measurement
from torchstone.records import (
    Contract,
    Measurement,
    Outcome,
    RecordError,
    UsageError,
    from_data,
    to_data,
)
from torchstone.variants import resolve_variant

FILE_SCHEMA = 1
HOME = "cpu"
"""Where contracts are written, so that every device can be held to the same one."""
FILE_LIMIT = 16 * 1024 * 1024
_EXACT = (
    "training",
    "grad_enabled",
    "autocast",
    "parameters",
    "parameter_dtypes",
    "weights_hash",
    "inputs_hash",
    "determinism",
)
_PLACE = re.compile(r"(?<=\]) on [\w:]+")
"""The device in the description of a leaf (`records.describe_leaf`)."""


@dataclass(frozen=True)
class Finding:
    """One line of a contract check."""

    arm: str
    subject: str
    ok: bool
    message: str


@dataclass(frozen=True)
class Written:
    """What was written, and the variants that are not in it, each with the reason."""

    document: dict[str, Any]
    left_out: dict[str, str]


def write_contract(request: BenchRequest, path: str, events: Events | None = None) -> Written:
    """Inspect the target (and each `--vs`), and write what was found to a file."""
    if request.device != HOME:
        raise UsageError(
            f"A contract is written on the CPU, not on {request.device}: `contract check --device` "
            "holds other devices to what it says there.",
            "Leave --device out here, and give it to `contract check`.",
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"There is no folder {folder}.", "Make it first.")
    if not writable(path):
        raise UsageError(f"{path} cannot be written.", ANOTHER)
    inspections = _inspect(request, events)
    base = inspections[0].measurement
    if _lame(inspections[0]):
        raise UsageError(
            f"{base.arm.target} has no contract to speak of: {_outcome(base)}.",
            "Make it run with `torchstone bench` first.",
        )
    left_out = {i.measurement.arm.variant: _outcome(i.measurement) for i in inspections if _lame(i)}
    document = {
        "schema": FILE_SCHEMA,
        "torchstone": torchstone.__version__,
        "target": request.targets[0],
        "mode": request.mode,
        "precision": request.precision,
        "seed": request.settings.seed,
        "contract": to_data(base.contract),
        "boundary": {i.measurement.arm.variant: i.boundary for i in inspections if not _lame(i)},
    }
    write_file(path, json.dumps(document, indent=2) + "\n")
    return Written(document, left_out)


def check_contract(
    request: BenchRequest, path: str, events: Events | None = None
) -> tuple[Finding, ...]:
    """Hold the target and its variants to the file."""
    written = read_contract(path)
    contract = from_data(Contract, written["contract"])
    inspections = _inspect(request, events)
    return hold(inspections, contract, written["boundary"])


def hold(
    inspections: Sequence[Inspection], contract: Contract, boundary: dict[str, dict[str, str]]
) -> tuple[Finding, ...]:
    """Every arm to what is written; the first one runs where the promise was made."""
    home = inspections[0].measurement.arm.device
    findings: list[Finding] = []
    for inspection in inspections:
        elsewhere = inspection.measurement.arm.device != home
        findings += _check_arm(inspection, contract, boundary, elsewhere)
    return tuple(findings)


def read_contract(path: str) -> dict[str, Any]:
    """The file, if it is one of ours."""
    try:
        if os.path.getsize(path) > FILE_LIMIT:
            raise UsageError(f"{path} is too large to be a contract.")
        written = json.loads(Path(path).read_text(encoding="utf-8"))
        if written["schema"] > FILE_SCHEMA:
            raise UsageError(f"{path} was written by a newer torchstone.", "Upgrade torchstone.")
        from_data(Contract, written["contract"])
        if not (isinstance(written["seed"], int) and isinstance(written["mode"], str)):
            raise RecordError("mode or seed")
        str(written["precision"])
        boundary = written["boundary"]
        if not all(isinstance(v, str) for cases in boundary.values() for v in cases.values()):
            raise RecordError("boundary")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.",
            "Write one with `torchstone contract write TARGET FILE`.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a contract file ({error}).",
            "Write one with `torchstone contract write TARGET FILE`.",
        ) from None
    result: dict[str, Any] = written
    return result


def _inspect(request: BenchRequest, events: Events | None) -> list[Inspection]:
    """Every arm as it may be shown and kept."""
    check_settings(request.settings)
    found = inspect_arms(make_arms(request), request.settings, events)
    return [replace(one, measurement=public_measurement(one.measurement)) for one in found]


def _lame(inspection: Inspection) -> bool:
    """It did not run, or gave a wrong answer: what it does is nothing to be held to."""
    measurement = inspection.measurement
    return measurement.contract is None or measurement.outcome is not Outcome.OK


def _outcome(measurement: Measurement) -> str:
    return f"{measurement.outcome.value}: {measurement.detail.message.rstrip('.')}"


def _check_arm(
    inspection: Inspection,
    contract: Contract,
    boundary: dict[str, dict[str, str]],
    elsewhere: bool,
) -> list[Finding]:
    measurement = inspection.measurement
    name, variant = measurement.arm.name, measurement.arm.variant
    if measurement.outcome is Outcome.NOT_SUPPORTED:
        return [Finding(name, "outcome", True, f"not supported: {measurement.detail.message}")]
    found = measurement.contract
    if measurement.outcome is not Outcome.OK or found is None:
        return [Finding(name, "outcome", False, _outcome(measurement))]
    changes = resolve_variant(variant).changes | ({"device"} if elsewhere else set())
    findings = [
        _leaves(name, "inputs", contract.inputs, found.inputs, changes),
        _leaves(name, "outputs", contract.outputs, found.outputs, changes),
    ]
    gradients = gradients_change(contract, found, changes)
    findings.append(Finding(name, "gradients", not gradients, gradients or "as written"))
    findings += [_exact(name, field, contract, found, changes) for field in _EXACT]
    written = boundary.get(variant, {})
    own = bool(written) and not elsewhere
    written = written or boundary.get("eager", {})
    for case, behaviour in inspection.boundary.items():
        findings.append(_boundary(name, case, behaviour, written.get(case, ""), own))
    return findings


def _boundary(arm: str, case: str, behaviour: str, want: str, own: bool) -> Finding:
    """As written for this variant on this device.

    One that is not in the file is held to what eager does, one on another device to what its
    variant does at home. Compilers and devices word their refusals differently, so two refusals
    count as the same behaviour there; so do outputs that differ in nothing but their place.
    """
    same = want == behaviour
    if not own and not same:
        both_refuse = _refuses(want) and _refuses(behaviour)
        same = both_refuse or _PLACE.sub("", want) == _PLACE.sub("", behaviour)
    message = behaviour if same else f"expected {want!r}, got {behaviour!r}"
    return Finding(arm, case, same, message)


def _refuses(behaviour: str) -> bool:
    return not behaviour.startswith(("output", "does not apply")) and bool(behaviour)


def _leaves(
    arm: str, subject: str, want: Sequence[Any], got: Sequence[Any], changes: frozenset[str]
) -> Finding:
    difference = compare_leaves(want, got, changes)
    return Finding(arm, subject, not difference, difference or f"{len(got)} leaves")


def _exact(
    arm: str, name: str, contract: Contract, found: Contract, changes: frozenset[str]
) -> Finding:
    want, got = getattr(contract, name), getattr(found, name)
    same = want == got or may_differ(name, changes)
    return Finding(arm, name, same, str(got) if same else f"expected {want}, got {got}")
