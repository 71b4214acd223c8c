"""What of an arm may be kept: of variables off the allow-list, only that they were set."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torchstone.conductor.clean import clean
from torchstone.machine.redact import redact_text, visible_variables, without_secrets
from torchstone.records import ArmSpec, Contract, Leaf, Ledger, Measurement, UsageError

HIDDEN = "(hidden)"
STATEMENT_NOTE = "a secret in the statement is not kept"
_OF_OURS = ("arm", "environment", "id", "created", "version", "schema")
"""Fields of a ledger that quote nobody."""
_ARM = "--arm"
_TO_QUOTE = re.compile(r"[\s'\"\\]")
"""Signs that `shlex.split` does not leave as they are."""


def public_env(env: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same names; values only where the allow-list lets them be seen."""
    given = dict(env)
    visible = visible_variables(given)
    return tuple((name, visible.get(name, HIDDEN)) for name in given)


def public_arm(arm: ArmSpec) -> ArmSpec:
    """The arm as it may be stored and shown."""
    statement = arm.statement
    if statement is not None:
        env = {**os.environ, **dict(arm.env)}
        # Secrets alone: a statement with another path in it could not be run again.
        stmt, setup = (without_secrets(text, env) for text in (statement.stmt, statement.setup))
        statement = replace(statement, stmt=stmt, setup=setup)
    return replace(arm, env=public_env(arm.env), statement=statement)


def public_measurement(measurement: Measurement) -> Measurement:
    """The record as it may be stored: every sentence that quotes user code is cleaned as well."""
    own = measurement.arm

    def cleaned(text: str) -> str:
        return clean(text, own)

    arm = public_arm(own)
    notes = tuple(map(cleaned, measurement.notes))
    if arm.statement != own.statement:
        notes = (*notes, STATEMENT_NOTE)
    detail, agreement, graphs = measurement.detail, measurement.agreement, measurement.graphs
    contract = measurement.contract
    return replace(
        measurement,
        arm=arm,
        detail=replace(
            detail, message=cleaned(detail.message), stderr=tuple(map(cleaned, detail.stderr))
        ),
        contract=contract and _public_contract(contract, own),
        agreement=agreement
        and replace(
            agreement, reason=cleaned(agreement.reason), mismatch=cleaned(agreement.mismatch)
        ),
        graphs=graphs and replace(graphs, break_reasons=tuple(map(cleaned, graphs.break_reasons))),
        notes=notes,
    )


def _public_contract(contract: Contract, arm: ArmSpec) -> Contract:
    """Keys of the target's own nests name the leaves, and notes may quote it; the rest is ours."""

    def named(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
        return tuple(replace(leaf, path=clean(leaf.path, arm)) for leaf in leaves)

    notes = tuple(clean(note, arm) for note in contract.notes)
    return replace(
        contract, inputs=named(contract.inputs), outputs=named(contract.outputs), notes=notes
    )


def public_ledger(ledger: Ledger, arm: ArmSpec) -> Ledger:
    """The ledger of that arm as it may be stored: graph breaks, guards and notes quote user code.

    Every text is cleaned except in the environment, which has been, and where nothing is quoted.
    """
    cleaned = {
        one.name: _clean(getattr(ledger, one.name), arm)
        for one in fields(ledger)
        if one.name not in _OF_OURS
    }
    return replace(ledger, **cleaned, arm=public_arm(arm))


def _clean(value: Any, arm: ArmSpec) -> Any:
    """The value with every text in it cleaned, however deep."""
    if isinstance(value, str):
        return clean(value, arm)
    if isinstance(value, tuple):
        return tuple(_clean(one, arm) for one in value)
    if isinstance(value, Mapping):
        return {key: _clean(one, arm) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {one.name: _clean(getattr(value, one.name), arm) for one in fields(value)}
        return replace(value, **changed)
    return value


def public_words(words: Iterable[str]) -> tuple[str, ...]:
    """A command line without the values of hidden variables."""
    words = list(words)
    return tuple(
        _public_word(before, word) for before, word in zip(["", *words], words, strict=False)
    )


def _public_word(before: str, word: str) -> str:
    if before == _ARM:
        return public_arm_text(word)
    if word.startswith(f"{_ARM}="):
        return f"{_ARM}={public_arm_text(word.partition('=')[2])}"
    return redact_text(word, os.environ)


def public_arm_text(text: str) -> str:
    """What follows `--arm`, without the values of hidden variables (`env.NAME=VALUE`)."""
    if "env." not in text:
        return redact_text(text, os.environ)
    try:
        words = shlex.split(text)
    except ValueError:  # quotes that do not close: who knows where a value ends
        return HIDDEN
    parts = []
    for part in words:
        key, _, value = part.partition("=")
        if key.startswith("env."):
            shown = dict(public_env([(key[4:], value)]))[key[4:]]
            part = f"{key}={shown}"
        parts.append(shlex.quote(part) if _TO_QUOTE.search(part) else part)
    return redact_text(" ".join(parts), os.environ)


def refuse_incomplete(measurement: Measurement) -> None:
    """Say so where a statement cannot be run again, because it is not kept whole."""
    if STATEMENT_NOTE in measurement.notes:
        raise UsageError(
            f"The statement {measurement.arm.name!r} was kept without the secret that stood in it.",
            "Time it anew, and read the secret from the environment in the setup.",
        )


def restore_env(arm: ArmSpec) -> ArmSpec:
    """Fill hidden variables from the present environment, or say which one is needed."""
    filled = []
    for name, value in arm.env:
        if value == HIDDEN:
            if name not in os.environ:
                raise UsageError(
                    f"The arm {arm.name!r} was run with {name} set, and its value is not kept.",
                    f"Set {name} in the environment and try again.",
                )
            value = os.environ[name]
        filled.append((name, value))
    return replace(arm, env=tuple(filled))
