"""The terminal report says what it should, fits, and emits nothing of its own accord."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone import stats
from torchstone.records import Check, GitState, Level, Outcome, OutcomeDetail, Turn, Verdict
from torchstone.show.table import cells
from torchstone.show.terminal import report

from . import synthetic_result as made

SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", made.ALL)
@pytest.mark.parametrize("width", [60, 72, 100, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_line_fits_and_is_plain(name: str, width: int, unicode: bool) -> None:
    text = report(made.ALL[name](), color=False, width=width, unicode=unicode)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert text.endswith("\n")
    assert not re.search(r" $", text, re.MULTILINE)
    assert unicode or text.isascii()


@pytest.mark.parametrize("name", made.ALL)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    painted = report(made.ALL[name](), color=True, width=100)
    bare = SGR.sub("", painted)
    assert painted != bare
    assert "\x1b" not in bare
    assert bare.replace(" ", "") == (
        report(made.ALL[name](), color=False, width=100).replace(" ", "")
    )


def test_one_target_has_absolute_figures_only() -> None:
    text = report(made.single(), width=100)
    assert text.startswith("bench examples/two_layer.py:make · inference · fp32 · cpu · 2 threads")
    assert "Intel Xeon Platinum 8370C, 2 CPUs · 8 GiB · Linux · Python 3.11.7 · torch 2.13" in text
    assert re.search(r"^  eager +1\.2\d\d ms ±0\.\d\d %  │█", text, re.MULTILINE)
    assert "speed-up" not in text
    assert "verdict" not in text
    assert "×" not in text
    assert "7 checks ok" in text
    assert "id r7k2m9 · torchstone show r7k2m9 · torchstone repro r7k2m9" in text


def test_the_closing_commands_name_the_database_that_was_named() -> None:
    text = report(made.single(), width=120, db="my night.db")
    assert "torchstone show r7k2m9 --db 'my night.db' · " in text
    assert "torchstone repro r7k2m9 --db 'my night.db'\n" in text
    narrow = report(made.single(), width=60, db="d" * 50)
    assert "torchstone show r7k2m9 --db \\\n  " + "d" * 50 + "\n" in narrow


def test_two_arms_with_ratio_verdict_memory_and_compile_cost() -> None:
    text = report(made.two_faster(), width=160)
    row = next(line for line in text.splitlines() if line.startswith("  inductor"))
    assert "1.52× 1.51–1.53  faster" in row
    assert "31.0 MiB" in row
    assert "12.1 s / 2.30 s" in row
    assert "1.50×" in row
    base = next(line for line in text.splitlines() if line.startswith("  eager"))
    assert "baseline" in base
    assert "×" not in base
    assert "compile cold / warm" in text
    assert "speed-up (95 %)" in text
    assert "! page-faults: inductor takes 30 minor faults" in text
    assert "- noise: 31 % of the probes" in text


def test_narrow_terminals_get_the_same_facts_in_more_tables() -> None:
    wide, narrow = (report(made.two_faster(), width=w) for w in (160, 60))
    for fact in (
        "1.52×",
        "1.51–1.53",
        "faster",
        "31.0 MiB",
        "12.1 s / 2.30 s",
        "1.50×",
        "7 checks",
    ):
        assert fact in wide
        assert fact in narrow
    assert len(narrow.splitlines()) > len(wide.splitlines())


def test_long_names_on_narrow_terminals_keep_the_verdict_in_their_row() -> None:
    text = report(made.cannot_tell(), width=60)
    lines = text.splitlines()
    row = lines[lines.index("  channels_last") + 1]
    assert "1.01× 0.98–1.04  cannot tell" in row


def test_cannot_tell_says_why_and_what_could_have_been_seen() -> None:
    text = " ".join(report(made.cannot_tell(), width=100).split())
    assert "cannot tell: The interval is wider than the margin." in text
    assert "The smallest change this data could have shown is 3.1 %." in text


def test_failures_come_with_evidence_and_remedy() -> None:
    text = report(made.four_with_failures(), width=100)
    assert "✗ inductor  crash (first call): the worker died [SIGSEGV, exit code -11]" in text
    assert "    │ Fatal Python error: Segmentation fault" in text
    assert "    │   File \\x1b[1m'model.py'\\x1b[0m, line 9" in text
    assert "→ Run `torchstone repro` under a debugger" in text
    assert "timeout (step): no step finished within 60 s [SIGKILL, exit code -9]" in text
    assert "expected float32[8,128], got bfloat16[8,128]" in text
    assert re.search(r"^  half +400\.\d µs ±\S+ %  wrong answer ", text, re.MULTILINE)
    assert "✗ contract: half does not keep the contract." in text


def test_only_the_last_stderr_lines_are_shown() -> None:
    detail = OutcomeDetail(message="died", stderr=tuple(f"line {i}" for i in range(50)))
    text = report(made.result((made.failed("x", Outcome.CRASH, detail),)), width=80)
    assert "line 49" in text
    assert "line 42" in text
    assert "line 41" not in text


def test_no_samples_no_pictures() -> None:
    text = report(made.no_samples(), width=100)
    assert "not run (warm-up): interrupted before the first turn" in text
    assert "interrupted\n" in text
    assert "│" not in text
    assert "µs" not in text


def test_hostile_names_are_shown_escaped() -> None:
    text = report(made.hostile(), width=160)
    assert "red\\x1b[31m\\x1b]0;owned\\x07name" in text
    assert "two\\nlines|and `ticks` @someone\\u202egnp" in text
    assert "longlong" in text
    assert "…" in text


def test_verdicts_are_coloured_by_meaning() -> None:
    assert "\x1b[32mfaster" in report(made.two_faster(), color=True, width=100)
    assert "\x1b[1;31mcrash" in report(made.four_with_failures(), color=True, width=100)
    assert "\x1b[33mcannot tell" in report(made.cannot_tell(), color=True, width=100)


def test_ascii_fallback() -> None:
    text = report(made.two_faster(), width=100, unicode=False)
    assert "1.52x 1.51-1.53  faster" in text
    assert "+-" in text
    assert " us" in text


def test_a_result_that_was_not_saved_offers_no_commands() -> None:
    assert "torchstone show" not in report(made.single(), width=100, saved=False)
    assert "torchstone show" not in report(replace(made.single(), id=""), width=100)


def test_checks_name_the_arm_where_the_message_does_not() -> None:
    check = Check("noise", Level.WARN, "Too noisy.", {}, ("inductor",))
    text = report(replace(made.two_faster(), checks=(check,)), width=100)
    assert "! noise (inductor): Too noisy." in text


def test_where_it_came_from_and_its_revision() -> None:
    arm = made.arm()
    assert arm.environment is not None
    git = GitState("0123456789abcdef", dirty=True)
    arm = replace(arm, environment=replace(arm.environment, git=git))
    text = report(made.result((arm,), origin="run-7.json", label="nightly"), width=160)
    assert "bench nightly: examples/two_layer.py:make" in text
    assert "from run-7.json" in text
    assert "git 0123456789 (changed)" in text


def test_changing_shapes_are_in_the_heading() -> None:
    arms = tuple(replace(a, arm=replace(a.arm, shapes=4)) for a in made.two_faster().arms)
    lines = report(replace(made.two_faster(), arms=arms), width=100).splitlines()
    assert "4 input shapes" in lines[0]
    assert "shapes" not in report(made.two_faster(), width=100)


def test_the_figure_that_decided_leads() -> None:
    by_typical = replace(made.two_faster().comparisons[0], decided_by="median")
    text = report(replace(made.two_faster(), comparisons=(by_typical,)), width=160)
    assert "typical per call" in text
    row = next(line for line in text.splitlines() if line.startswith("  inductor"))
    assert re.match(r"  inductor  8[45]\d\.\d µs ±", row)
    assert re.search(r"81\d\.\d µs 1\.52×", row)


def test_a_floor_that_is_not_known_has_no_ratio_beside_it() -> None:
    result = made.two_faster()
    by_pairs = replace(result.comparisons[0], decided_by="pairs")
    arms = tuple(
        replace(one, turns=tuple(replace(t, wall_ns=_times(t.wall_ns, t)) for t in one.turns))
        for one in result.arms
    )
    text = report(replace(result, arms=arms, comparisons=(by_pairs,)), width=160)
    row = next(line for line in text.splitlines() if line.startswith("  inductor"))
    assert re.search(r" unknown  +\d", row)
    assert "unknown 1." not in row


def _times(wall_ns: tuple[int, ...], turn: Turn) -> tuple[int, ...]:
    """Each process as far above the one before as only a busy machine makes it."""
    return tuple(wall * (1 + turn.replicate) for wall in wall_ns)


def test_comparisons_without_bounds_or_numbers_are_shown_without_them() -> None:
    lone = [
        replace(m, turns=made.turns(step, seed=i, processes=1))
        for i, (m, step) in enumerate(((made.arm(), 2e-3), (made.compiled(), 1e-3)))
    ]
    real = stats.compare(lone[0], lone[1], margin=0.02, alpha=0.05, aa_floor=0.0)
    text = report(made.result(tuple(lone), (real,)), width=160)
    row = next(line for line in text.splitlines() if line.startswith("  inductor"))
    assert "cannot tell" in row
    assert re.search(r" [12]\.\d+× +cannot tell", row)
    assert "? inductor  cannot tell: Only one process" in text
    nothing = made.comparison("eager", "inductor", math.nan, math.nan, Verdict.CANNOT_TELL)
    text = report(replace(made.two_faster(), comparisons=(nothing,)), width=160)
    assert "nan" not in text


def test_real_comparisons_read_well() -> None:
    base, new = made.arm(), made.compiled()
    text = report(
        made.result(
            (base, new), (stats.compare(base, new, margin=0.02, alpha=0.05, aa_floor=0.0),)
        ),
        width=160,
    )
    assert re.search(r"inductor .* 1\.5\d+× 1\.\d+–1\.\d+  faster", text)


def test_an_empty_result_is_no_accident() -> None:
    assert "nothing was measured" in report(made.result(()), width=80)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=3, unique=True), st.integers(60, 130))
def test_any_names_fit(names: list[str], width: int) -> None:
    arms = tuple(made.arm(name, 1e-3, seed=i) for i, name in enumerate(names))
    text = report(made.result(arms, label=names[0]), width=width)
    assert max(cells(line) for line in text.split("\n")) <= width
    text.encode("utf-8")
