"""Targets whose outputs agree or disagree with `base`, in numpy, or are never the same."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

from tests.targets.honest import Made


def draw(seed: int) -> tuple[Any]:
    return (np.random.default_rng(seed).standard_normal((8, 128)).astype("float32"),)


def _giving(change: Any) -> Made:
    def call(x: Any) -> Any:
        out = {"logits": np.tanh(x), "best": np.tanh(x).argmax(-1), "note": "fine"}
        return change(out)

    return call, draw


def _with(**more: Any) -> Made:
    return _giving(lambda out: {**out, **{key: make(out) for key, make in more.items()}})


def base() -> Made:
    return _giving(lambda out: out)


def other_order() -> Made:
    return _giving(lambda out: dict(reversed(out.items())))


def wrong_dtype() -> Made:
    return _with(logits=lambda out: out["logits"].astype("float16"))


def wrong_shape() -> Made:
    return _with(logits=lambda out: out["logits"][:, :127])


def extra_key() -> Made:
    return _with(hidden=lambda out: out["logits"])


def missing_key() -> Made:
    return _giving(lambda out: {"logits": out["logits"], "note": out["note"]})


def nan() -> Made:
    return _with(logits=lambda out: np.where(out["logits"] > 0.9, np.nan, out["logits"]))


def wrong_values() -> Made:
    return _with(logits=lambda out: out["logits"] * np.float32(1.001))


def wrong_integers() -> Made:
    return _with(best=lambda out: out["best"] + (out["best"] == out["best"][0]))


def wrong_text() -> Made:
    return _with(note=lambda out: "poor")


def nearly_the_same() -> Made:
    return _with(logits=lambda out: out["logits"] * np.float32(1 + 2e-7))


def nothing() -> Made:
    def call(x: Any) -> None:
        np.tanh(x)

    return call, draw


def overflows() -> Made:
    """NaN in float32 for every seventh value or so, and what was given in float64."""

    def call(x: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            large = np.exp(60 * np.abs(x))
            return x * large / large

    return call, draw


def stays_in_range() -> Made:
    return (lambda x: x * np.float32(1.0)), draw


def random_weights() -> Made:
    weight = np.frombuffer(os.urandom(128), dtype="uint8").astype("float32")
    return (lambda x: x * weight), draw


def random_output() -> Made:
    return (lambda x: x * random.SystemRandom().random()), draw


def counts_its_calls() -> Made:
    calls = 0

    def call(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * calls

    return call, draw


def seeded_randomness() -> Made:
    """Random, but from generators that are seeded for every checked call."""
    return (lambda x: x * random.random() + np.random.rand()), draw
