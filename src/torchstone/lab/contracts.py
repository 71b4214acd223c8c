"""`torchstone contract`: write down what a target promises, and hold it to that later."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torchstone
from torchstone.conductor import Events
from torchstone.conductor.inspect import Inspection, inspect_arms
from torchstone.conductor.judge import compare_leaves
from torchstone.conductor.promises import gradients_change, may_differ
from torchstone.lab.outputs import ANOTHER, writable, write_file
from torchstone.lab.request import BenchRequest, check_settings, make_arms
from torchstone.records import Contract, Outcome, RecordError, UsageError, from_data, to_data
from torchstone.variants import resolve_variant

FILE_SCHEMA = 1
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


def write_contract(
    request: BenchRequest, path: str, events: Events | None = None
) -> dict[str, Any]:
    """Inspect the target (and each `--vs`), and write what was found to a file."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"There is no folder {folder}.", "Make it first.")
    if not writable(path):
        raise UsageError(f"{path} cannot be written.", ANOTHER)
    inspections = _inspect(request, events)
    _refuse_broken(inspections[0])
    base = inspections[0].measurement
    document = {
        "schema": FILE_SCHEMA,
        "torchstone": torchstone.__version__,
        "target": request.targets[0],
        "mode": request.mode,
        "precision": request.precision,
        "seed": request.settings.seed,
        "contract": to_data(base.contract),
        "boundary": {i.measurement.arm.variant: i.boundary for i in inspections},
    }
    write_file(path, json.dumps(document, indent=2) + "\n")
    return document


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
    check_settings(request.settings)
    return inspect_arms(make_arms(request), request.settings, events)


def _refuse_broken(inspection: Inspection) -> None:
    measurement = inspection.measurement
    if measurement.contract is None or measurement.outcome is not Outcome.OK:
        raise UsageError(
            f"{measurement.arm.target} has no contract to speak of: "
            f"{measurement.outcome.value}: {measurement.detail.message}.",
            "Make it run with `torchstone bench` first.",
        )


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
    if measurement.outcome is not Outcome.OK or measurement.contract is None:
        message = f"{measurement.outcome.value}: {measurement.detail.message}"
        return [Finding(name, "outcome", False, message)]
    found = measurement.contract
    changes = resolve_variant(variant).changes | ({"device"} if elsewhere else set())
    findings = [
        _leaves(name, "inputs", contract.inputs, found.inputs, changes),
        _leaves(name, "outputs", contract.outputs, found.outputs, changes),
    ]
    gradients = gradients_change(contract, found, changes)
    findings.append(Finding(name, "gradients", not gradients, gradients or "as written"))
    findings += [_exact(name, field, contract, found, changes) for field in _EXACT]
    own = variant in boundary and not elsewhere
    written = boundary.get(variant, boundary.get("eager", {}))
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
