"""Techniques of another package: one that helps, and every way in which one can go wrong."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from torchstone.records import ArmSpec
from torchstone.variants.techniques.base import MODEL, Code, Technique, on_model


def planted_faster(model: Any) -> Any:
    """The same answer in a quarter of the time."""
    model.rounds = model.rounds // 4
    return model


def planted_zeros(model: Any) -> Any:
    """No answer, at once."""
    model.rounds, model.factor = 1, 0
    return model


def planted_stale(model: Any) -> Any:
    """The answer to the first call, for ever."""
    whole, kept = model.answer, []

    def answer(values: Any) -> Any:
        if not kept:
            kept.append(whole(values))
        return kept[0]

    model.answer, model.rounds = answer, 1
    return model


def planted_same(model: Any) -> Any:
    """Nothing."""
    return model


def planted_slower(model: Any) -> Any:
    """Twenty times the work."""
    model.rounds *= 20
    return model


def planted_crash(model: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)
    return model


def planted_hang(model: Any) -> Any:
    def answer(values: Any) -> Any:
        time.sleep(3600)

    model.answer = answer
    return model


def planted_error(model: Any) -> Any:
    raise RuntimeError("it does not like this model")


def planted_refusal(model: Any) -> Any:
    raise NotImplementedError("the model has no such layer")


def _made(function: Any, **more: Any) -> Technique:
    return Technique(
        function.__name__,
        (function.__doc__ or "planted").splitlines()[0],
        on_model(function),
        needs_torch=False,
        code=(Code(MODEL, function),),
        **more,
    )


def _never(arm: ArmSpec) -> str:
    return "this machine has no unicorn"


FASTER = _made(planted_faster)
ZEROS = _made(planted_zeros)
STALE = _made(planted_stale)
SAME = _made(planted_same)
SLOWER = _made(planted_slower)
CRASH = _made(planted_crash)
HANG = _made(planted_hang)
ERROR = _made(planted_error)
REFUSAL = _made(planted_refusal)
ELSEWHERE = _made(planted_same, unsupported=_never)
NAMES = ("FASTER", "ZEROS", "STALE", "SAME", "SLOWER", "CRASH", "HANG", "ERROR", "REFUSAL")
