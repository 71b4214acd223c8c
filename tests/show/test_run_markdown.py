"""A run as Markdown: the same tables, harmless, and short enough for a comment."""

from __future__ import annotations

import re

import pytest

from tests.show.reports import run_markdown
from torchstone.records import Outcome, RunView

from . import synthetic_run as made
from .test_markdown import table

MOST_OF_GITHUB = 65_536


def markdown(view: RunView) -> str:
    return run_markdown(view, made.summaries(view))


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table."""
    parts = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [table(part) for part in parts]


@pytest.mark.parametrize("name", made.ALL)
def test_rows_have_as_many_cells_as_the_heading(name: str) -> None:
    view = made.ALL[name]()
    text = markdown(view)
    ran = [c for c in view.complete if c.outcome not in (Outcome.NOT_RUN, Outcome.NOT_SUPPORTED)]
    found = tables(text)
    assert len(found) == 1 + bool(ran)
    for rows in found:
        assert {len(row) for row in rows} == {len(rows[0])}
        assert all(re.fullmatch(r":--|--:", mark) for mark in rows[1])
    if ran:
        assert len(found[-1]) == 2 + len(ran)


def test_same_figures_as_the_terminal() -> None:
    suites, cases = tables(markdown(made.small()))
    assert suites[0][:5] == ["suite", "passed", "speed-up (95 %)", "compile cold / warm", "memory"]
    assert suites[2][:3] == ["`huggingface@small inductor`", "2/2 100 %", "1.15× 1.14–1.17 of 2"]
    assert cases[4] == [
        "`ghostnet_100`",
        "`timm@small inductor`",
        "0.90× 0.88–0.92",
        "**slower &#33;**",
        "12.3 → 13.7 ms",
        "12.1 s",
        "0.95×",
        "2",
        "8d2k1f",
        "allocator, noise",
    ]


def test_failures_and_what_did_not_run_are_listed() -> None:
    text = markdown(made.every_outcome())
    assert "8 of 10 cases done · 1 ok · 1 wrong answer" in text
    assert "To go on: `torchstone run --resume 1jz3k4m`" in text
    assert (
        "- `huggingface/model_3@small inference fp32 inductor` crash (inductor): first call: the "
        "worker died of SIGSEGV while inductor compiled the first graph. Again: `torchstone bench "
        "hf:model_3@small --vs inductor --mode inference --threads 1 --replicates 4 --budget 20s`"
    ) in text
    assert "**6 failed**" in text
    assert "**1 not supported** (not in the pass rate)\n\n- cudagraphs needs a CUDA device" in text
    assert "**2 not run** (they count against the pass rate)\n\n- 1 case: the total" in text


def test_many_cases_wait_behind_a_click() -> None:
    assert markdown(made.small()).count("<details>") == 1, "but for what the figures mean"
    text = markdown(made.nightly())
    assert "<details><summary>37 cases</summary>\n\n| case |" in text
    assert text.count("</details>") == 2


def test_hostile_text_does_no_harm() -> None:
    text = markdown(made.hostile())
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "@someone" not in text
    assert "&#60;script&#62;" in text
    inner = re.sub(r"&#\d+;|<!-- -->|</?(?:code|sub|details|summary)>", "", text)
    assert not re.search(r"[<>]", inner)


def test_the_longest_run_fits_in_a_comment() -> None:
    cases = []
    for number in range(1500):
        key = made.key(f"a_model_with_quite_a_long_name_{number:04d}")
        outcomes = (Outcome.OK, Outcome.CRASH, Outcome.NOT_SUPPORTED, Outcome.NOT_RUN)
        outcome = outcomes[number % 4]
        reason = f"<{number}> " * 200
        cases.append(made.ok(key) if outcome is Outcome.OK else made.bad(key, outcome, reason))
    text = markdown(made.view(cases, notes=("&" * 5000,), label="<" * 5000))
    assert len(text) < MOST_OF_GITHUB
    assert "**375 failed**" in text
    shown = len(tables(text)[-1]) - 2
    assert f"{750 - shown} cases more: torchstone show 1jz3k4m --csv" in text
    assert re.search(r"- and \d+ more", text)
