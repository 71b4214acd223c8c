"""What of an arm may be kept: of variables off the allow-list, only that they were set."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import replace

from torchstone.machine.redact import redact_text, visible_variables
from torchstone.records import ArmSpec, Measurement, UsageError

HIDDEN = "(hidden)"


def public_env(env: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same names; values only where the allow-list lets them be seen."""
    given = dict(env)
    visible = visible_variables(given)
    return tuple((name, visible.get(name, HIDDEN)) for name in given)


def public_arm(arm: ArmSpec) -> ArmSpec:
    """The arm as it may be stored and shown."""
    return replace(arm, env=public_env(arm.env))


def public_measurement(measurement: Measurement) -> Measurement:
    """The record as it may be stored: every sentence that quotes user code is cleaned as well."""
    env = {**os.environ, **dict(measurement.arm.env)}

    def clean(text: str) -> str:
        return redact_text(text, env)

    detail, agreement, graphs = measurement.detail, measurement.agreement, measurement.graphs
    return replace(
        measurement,
        arm=public_arm(measurement.arm),
        detail=replace(
            detail, message=clean(detail.message), stderr=tuple(map(clean, detail.stderr))
        ),
        agreement=agreement
        and replace(agreement, reason=clean(agreement.reason), mismatch=clean(agreement.mismatch)),
        graphs=graphs and replace(graphs, break_reasons=tuple(map(clean, graphs.break_reasons))),
        notes=tuple(map(clean, measurement.notes)),
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
