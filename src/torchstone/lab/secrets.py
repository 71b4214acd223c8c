"""What of an arm may be kept: of variables off the allow-list, only that they were set."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import replace

from torchstone.machine.redact import redact_text, visible_variables, without_secrets
from torchstone.records import ArmSpec, Measurement, UsageError

HIDDEN = "(hidden)"
STATEMENT_NOTE = "a secret in the statement is not kept"


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
    env = {**os.environ, **dict(measurement.arm.env)}

    def clean(text: str) -> str:
        return redact_text(text, env)

    arm = public_arm(measurement.arm)
    notes = tuple(map(clean, measurement.notes))
    if arm.statement != measurement.arm.statement:
        notes = (*notes, STATEMENT_NOTE)
    detail, agreement, graphs = measurement.detail, measurement.agreement, measurement.graphs
    return replace(
        measurement,
        arm=arm,
        detail=replace(
            detail, message=clean(detail.message), stderr=tuple(map(clean, detail.stderr))
        ),
        agreement=agreement
        and replace(agreement, reason=clean(agreement.reason), mismatch=clean(agreement.mismatch)),
        graphs=graphs and replace(graphs, break_reasons=tuple(map(clean, graphs.break_reasons))),
        notes=notes,
    )


def public_words(words: Iterable[str]) -> tuple[str, ...]:
    """A command line without the values of hidden variables."""
    return tuple(_public_word(word) for word in words)


def _public_word(word: str) -> str:
    if "env." in word and "=" in word:
        parts = []
        for part in shlex.split(word):
            key, _, value = part.partition("=")
            if key.startswith("env."):
                shown = dict(public_env([(key[4:], value)]))[key[4:]]
                part = f"{key}={shown}"
            parts.append(shlex.quote(part) if " " in part else part)
        word = " ".join(parts)
    return redact_text(word, os.environ)


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
