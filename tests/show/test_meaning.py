"""What the figures of a case mean, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.show import synthetic_run as made
from torchstone.records import CaseMetrics, Outcome, Verdict
from torchstone.show.evidence import meaning

CASE = replace(
    CaseMetrics(made.key(), Outcome.OK),
    verdict=Verdict.FASTER,
    speedup=1.25,
    interval=(1.2, 1.3),
    base_ns=50e6,
    new_ns=40e6,
    compile_cold_ns=12_000_000_000,
)


def said(verdict: Verdict, speedup: float, interval: tuple[float, float]) -> str:
    return meaning(replace(CASE, verdict=verdict, speedup=speedup, interval=interval))


def test_a_gain_says_when_compiling_pays_off() -> None:
    assert meaning(CASE) == (
        "inductor takes 20 % less time a call; 50.0 ms to 40.0 ms; 12.0 s of compiling pay off "
        "after 1,200 calls."
    )


@pytest.mark.parametrize(
    ("verdict", "speedup", "interval", "words"),
    [
        (Verdict.SLOWER, 0.8, (0.75, 0.85), "takes 25 % more time a call: leave this model eager"),
        (Verdict.SAME, 1.001, (0.99, 1.01), "makes no difference beyond 2.0 %"),
        (Verdict.NOT_SLOWER, 1.04, (1.0, 1.25), "is not slower, and saves at most 20 %"),
        (Verdict.NOT_FASTER, 0.96, (0.8, 1.0), "is not faster, and costs at most 25 %"),
        (Verdict.CANNOT_TELL, 1.0, (0.8, 1.25), "anything from 25 % more time to 20 % less"),
    ],
)
def test_every_verdict_has_its_words(
    verdict: Verdict, speedup: float, interval: tuple[float, float], words: str
) -> None:
    text = said(verdict, speedup, interval)
    assert words in text
    assert "pay off" not in text


def test_an_open_case_names_the_budget_that_would_decide() -> None:
    case = replace(CASE, verdict=Verdict.CANNOT_TELL, interval=(0.9, 1.1), deciding_budget_s=45.0)
    assert "--budget-per-case 45s would probably tell 2 %" in meaning(case)


@pytest.mark.parametrize(
    ("base", "new", "words"),
    [(100, 50, "tensors need 50 % less memory"), (100, 290, "tensors need 2.9 times the memory")],
)
def test_memory_is_mentioned_where_it_differs(base: int, new: int, words: str) -> None:
    assert words in meaning(replace(CASE, base_tensor_bytes=base, new_tensor_bytes=new))
    assert "tensors" not in meaning(replace(CASE, base_tensor_bytes=100, new_tensor_bytes=99))


def test_what_failed_has_no_meaning() -> None:
    assert meaning(replace(CASE, outcome=Outcome.CRASH)) == ""
    assert meaning(replace(CASE, verdict=None)) == ""
