"""The terminal report of a run: the dashboard's tables, nothing left out, nothing too wide."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.show.reports import run_report
from torchstone.records import CaseMetrics, Level, Outcome, PassRate, RunView, Verdict
from torchstone.show import table
from torchstone.show.cells import pass_words
from torchstone.show.run import LOST, MOST_CASES
from torchstone.show.run_data import run_document
from torchstone.show.table import cells

from . import synthetic_run as made

SGR = re.compile(r"\x1b\[[0-9;]*m")
SMALL = """\
run 1jz3k4m nightly · 2026-11-15 20:30 · quick tier · inference · fp32 · cpu · 1 thread
allocator keeps memory
Intel Xeon Platinum 8370C · torch 2.13.0+cpu · git 0123456789 (changed) · torchstone 0.1.0
one thread, because this machine has 2 cores (--threads changes it)
3 of 3 cases done · 3 ok

                              passed     speed-up (95 %)       compile cold / warm   memory
  huggingface@small inductor  2/2 100 %  1.15× 1.14–1.17 of 2  12.1 s / 2.30 s of 2  0.95× of 2
  timm@small inductor         1/1 100 %  0.90× 0.88–0.92 of 1  12.1 s / 2.30 s of 1  0.95× of 1
  passed: of all planned cases but those not supported; of 5: a mean over five passing cases
  (geometric for ratios), 4 of 5: over four of them; memory 2×: the arm's tensors need twice as much
  as the baseline's

                       speed-up (95 %)  verdict       base → new  compile  memory  breaks
  huggingface@small inductor  1 faster, 1 same
    AlbertForMaskedLM  1.32× 1.29–1.35  faster    12.3 → 9.32 ms   12.1 s   0.95×       0
    GoogleFnet         1.00× 0.99–1.02  same      12.3 → 12.3 ms   12.1 s   0.95×       0
  timm@small inductor  1 slower
    ghostnet_100       0.90× 0.88–0.92  slower !  12.3 → 13.7 ms   12.1 s   0.95×       2
  ! checks: allocator in 1 case, noise in 1 case; `torchstone show` of a case's result says more

id 1jz3k4m · torchstone show 1jz3k4m · torchstone show 1jz3k4m --csv
torchstone show 1jz3k4m --commands

All of it in a browser:
  torchstone serve --open
Why ghostnet_100 is slower:
  torchstone explain timm:ghostnet_100@small --vs inductor --threads 1
"""
FAILED = """\
  ✗ huggingface/model_2@small inference fp32 inductor
    error (eager, the baseline): building: ValueError: bad\\nvalue
    → torchstone bench hf:model_2@small --vs inductor --mode inference --threads 1 --replicates 4 \\
      --budget 20s
    evidence: torchstone show x1y2z3
"""


def report(view: RunView, **options: object) -> str:
    return run_report(view, made.summaries(view), **options)  # type: ignore[arg-type]


def row(text: str, beginning: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(beginning))


@pytest.mark.parametrize("name", made.ALL)
@pytest.mark.parametrize("width", [20, 60, 80, 100, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_every_line_fits_and_is_plain(name: str, width: int, unicode: bool) -> None:
    text = report(made.ALL[name](), width=width, unicode=unicode, commands=True)
    assert max(cells(line) for line in text.splitlines()) <= max(width, 40)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert text.endswith("\n")
    assert not re.search(r" $", text, re.MULTILINE)
    assert unicode or text.isascii()


@pytest.mark.parametrize("name", made.ALL)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    painted = report(made.ALL[name](), color=True)
    bare = SGR.sub("", painted)
    assert painted != bare
    assert "\x1b" not in bare
    assert bare.replace(" ", "") == report(made.ALL[name]()).replace(" ", "")


def test_the_whole_picture() -> None:
    assert report(made.small(), width=100) == SMALL


def test_the_last_lines_say_what_to_do_next() -> None:
    text = report(made.small(), width=100)
    assert text.splitlines()[-1].endswith(
        "explain timm:ghostnet_100@small --vs inductor --threads 1"
    )
    view = made.small()
    fast = tuple(
        replace(case, verdict=Verdict.FASTER, speedup=2.0 + i) for i, case in enumerate(view.cases)
    )
    assert "Where the time of" in report(replace(view, cases=fast), width=100)


def test_failures_have_reason_command_and_evidence() -> None:
    text = report(made.every_outcome(), width=100)
    assert FAILED in text
    assert "\n6 failed\n" in text
    assert "crash (inductor): first call: the worker died of SIGSEGV" in text
    for outcome in ("wrong answer", "nondeterministic", "error", "crash", "oom", "timeout"):
        assert re.search(rf"^    model_\d +{outcome}$", text, re.MULTILINE), outcome


def test_what_did_not_run_is_listed_apart_and_counted() -> None:
    text = report(made.every_outcome(), width=100)
    assert "1 not supported  not in the pass rate" in text
    assert "  - cudagraphs needs a CUDA device: huggingface/model_6\n" in text
    assert "2 not run  they count against the pass rate" in text
    assert "  - 1 case: the total budget was spent\n  - 1 case: not started\n" in text
    assert not re.search(r"^    (model_6|model_7|never)", text, re.MULTILINE)
    assert "1/9 11 %" in text


def test_an_incomplete_run_says_how_to_go_on() -> None:
    text = report(made.every_outcome(), width=100)
    heading = text.split("\n\n")[0]
    assert heading.endswith("→ torchstone run --resume 1jz3k4m")
    assert "8 of 10 cases done · 1 ok · 1 wrong answer" in heading
    assert text.count("torchstone run --resume 1jz3k4m") == 2
    assert "--resume" not in report(made.small())
    assert "--resume" not in report(replace_run(made.every_outcome(), origin="hud-v3"))


@pytest.mark.parametrize("width", [60, 100])
def test_commands_name_the_database_that_was_named(width: int) -> None:
    db = "results of the night/" + "deep/" * 5 + "kept.db"
    text = report(made.every_outcome(), width=width, db=db)
    assert max(cells(line) for line in text.splitlines()) <= width
    words = " ".join(text.replace("\\\n", " ").split())
    ending = f"--db '{db}'"
    assert words.count(f"torchstone run --resume 1jz3k4m {ending}") == 2
    assert f"evidence: torchstone show x1y2z3 {ending}" in words
    assert f"torchstone show 1jz3k4m {ending} --csv" in words
    assert words.count("--resume 1jz3k4m") == 2


def test_nothing_measured_yet() -> None:
    text = report(made.nothing(), width=100)
    assert "0 of 3 cases done · 3 not run" in text
    assert "0/2 0 %" in text
    assert "verdict" not in text


def test_one_row_a_group_under_its_suite() -> None:
    text = report(made.nightly(), width=100)
    table = text.split("\n\n")[1]
    assert "  huggingface@small  8 cases not supported\n    inference inductor  " in table
    assert re.search(r"^    training inductor\+dynamic   3/4 75 %   \d\.\d{3}× ", table, re.M)
    assert "fp32" not in table
    assert table.count("of 3") > 4


def test_what_is_not_supported_is_grouped_by_reason() -> None:
    text = report(made.nightly(), width=100)
    assert "  - cudagraphs needs a CUDA device: 18 cases of inductor+cudagraphs: " in text
    assert " and 1 more\n" in text
    assert text.count("needs a CUDA device") == 1


def test_settings_that_differ_are_in_the_rows_and_not_in_the_heading() -> None:
    text = report(made.mixed(), width=160)
    assert (
        text.splitlines()[0]
        == "run 1jz3k4m nightly · 2026-11-15 20:30 · quick tier · allocator keeps memory"
    )
    assert "my_suite inference fp32 inductor cuda 2 threads " in text
    assert "huggingface@small training amp inductor cpu 1 thread " in text


def test_wide_terminals_show_the_stored_result_and_the_rules() -> None:
    text = report(made.small(), width=160)
    assert row(text, "ghostnet_100").endswith("2  8d2k1f  allocator, noise")
    assert "process memory" in text
    assert "compiler's memory" in text
    assert "33.0 MiB" in text
    assert "8d2k1f" not in report(made.small(), width=100)


def test_commands_for_all_cases_where_asked() -> None:
    asked = report(made.small(), width=160, commands=True)
    for case in made.small().cases:
        assert f"    → {shlex.join(case.command)}\n" in asked
    assert "torchstone bench" not in report(made.small(), width=160)


@pytest.mark.parametrize("width", [60, 100])
def test_a_broken_command_can_be_copied(width: int) -> None:
    text = report(made.every_outcome(), width=width)
    commands = re.findall(r"→ (torchstone bench (?:.*\\\n)*.*)", text)
    failed = [c for c in made.every_outcome().cases if c.command and c.outcome is not Outcome.OK]
    assert len(commands) == len(failed) == 6
    for pasted, case in zip(commands, failed, strict=True):
        script = f'torchstone() {{ printf "%s\\n" torchstone "$@"; }}\n{pasted}\n'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert tuple(done.stdout.splitlines()) == case.command


def test_a_wrong_answer_has_no_speed() -> None:
    case = replace(made.ok(made.key(), 9.99, 0.01), outcome=Outcome.WRONG_ANSWER, reason="no")
    text = report(made.view([case]))
    assert "9.99" not in text
    assert "12.3 → 1.23 ms" in text


def test_a_verdict_that_many_cases_make_likely_by_chance_is_withdrawn() -> None:
    even = [made.ok(made.key(f"m{i}"), 1.001, 0.02) for i in range(40)]
    lone = made.ok(made.key("lucky"), 1.021, 0.02)
    assert lone.verdict is Verdict.FASTER
    text = report(made.view([*even, lone]))
    assert f"not slower {LOST}" in row(text, "lucky")
    assert f"{LOST} different by itself, but 41 cases together" in text
    assert "40 same" in row(text, "huggingface@small inductor  ")
    alone = report(made.view([lone]))
    assert LOST not in alone
    assert "faster" in row(alone, "lucky")


def test_a_failed_check_marks_its_case() -> None:
    case = made.ok(made.key(), checks=("timer",), worst_check=Level.FAIL)
    assert "faster ✗" in report(made.view([case]))
    assert "\x1b[1;31mfaster ✗" in report(made.view([case]), color=True)


def test_figures_that_are_missing_or_unbounded_leave_a_gap() -> None:
    case = made.ok(made.key(), interval=(0.9, float("inf")), base_ns=None)
    text = report(made.view([case]))
    assert "inf" not in text.replace("inference", "")
    assert re.search(r"BertForMaskedLM +1\.32× +faster +- → 9\.32 ms", text)


def test_another_tools_figures_stand_under_its_own_names() -> None:
    text = report(made.imported())
    assert "from dynamo-csv" in text
    heading = next(line for line in text.splitlines() if "abs_latency" in line)
    assert heading.split() == ["verdict", "speedup", "abs_latency"]
    assert row(text, "BertForMaskedLM").split() == ["BertForMaskedLM", "ok", "1.749", "84.5"]
    assert row(text, "GoogleFnet").split() == ["GoogleFnet", "error", "0", "nan"]
    assert "speedup, abs_latency: as pytorch-dynamo wrote and defines them" in text
    assert "speed-up" not in text


def test_rows_are_never_mistaken_for_each_other() -> None:
    """Where cutting names would make two alike, they stand on lines of their own."""
    names = [f"same_beginning_{'x' * 20}{i}{'y' * 20}_same_end" for i in range(3)]
    text = report(made.view([made.ok(made.key(name)) for name in names]), width=80)
    assert all(name in text for name in names)


def replace_run(view: RunView, **changes: object) -> RunView:
    return RunView(replace(view.run, **changes), view.cases)  # type: ignore[arg-type]


WORDS = st.text(max_size=30)
OUTCOMES = st.sampled_from(list(Outcome))


@st.composite
def views(draw: st.DrawFn) -> RunView:
    """Any names, any outcomes, some cases never started."""
    models = draw(st.lists(WORDS, min_size=1, max_size=8, unique=True))
    cases: list[CaseMetrics] = []
    for model in models:
        key = made.key(
            model,
            suite=draw(st.sampled_from(["huggingface", "s\n", "長い名前のスイート"])),
            mode=draw(st.sampled_from(["inference", "training"])),
            variant=draw(st.sampled_from(["inductor", "x" * 50])),
        )
        outcome = draw(OUTCOMES)
        if outcome is Outcome.OK:
            half = draw(st.floats(0.0001, 0.5))
            cases.append(made.ok(key, draw(st.floats(0.6, 50)), half))
        else:
            cases.append(made.bad(key, outcome, draw(WORDS), draw(WORDS)))
    started = cases[: draw(st.integers(0, len(cases)))]
    return made.view(cases, started, label=draw(WORDS), notes=(draw(WORDS),))


@settings(max_examples=60, deadline=None)
@given(views(), st.integers(40, 150), st.booleans(), st.booleans())
def test_any_run_fits_and_accounts_for_every_case(
    view: RunView, width: int, unicode: bool, commands: bool
) -> None:
    text = report(view, width=width, unicode=unicode, commands=commands)
    assert max(cells(line) for line in text.split("\n")) <= width
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert unicode or text.isascii()
    counts = " ".join(text.split("\n\n")[0].splitlines())
    done, planned = map(int, re.findall(r"(\d+) of (\d+) cases? done", counts)[-1])
    found = {o: sum(c.outcome is o for c in view.complete) for o in Outcome}
    said = counts[counts.rindex(" done") :]
    for outcome, number in found.items():
        word = outcome.value.replace("_", " ")
        assert (f" {number} {word}" in f" {said}") is bool(number)
    assert planned == len(view.run.plan) == sum(found.values())
    assert done == planned - found[Outcome.NOT_RUN]


def test_a_mean_says_how_many_cases_it_is_over() -> None:
    full, bare = made.ok(made.key("a")), made.ok(made.key("b"), new_tensor_bytes=None)
    bare = replace(bare, compile_warm_ns=None)
    text = report(made.view([full, bare, made.bad(made.key("c"), Outcome.CRASH, "x")]), width=120)
    found = row(text, "huggingface@small inductor")
    assert "2/3 67 %" in found
    assert "1.30–1.34 of 2  12.1 s / 2.30 s of 2 / 1  0.95× 1 of 2" in found


def test_a_case_that_nothing_is_known_of_is_in_no_mean_and_that_is_said() -> None:
    known = made.ok(made.key("a"), 1.67, 0.07)
    wide = replace(made.ok(made.key("b"), 0.09), interval=(0.00178, 4.40), log_error=0.9)
    view = made.view([known, wide])
    text = report(view, width=120)
    assert re.search(r"1\.67× 1\.6\d–1\.7\d 1 of 2 ", row(text, "huggingface@small inductor"))
    said = " ".join(text.split())
    assert "1 case in no mean speed-up: the interval reaches further than a factor of 2" in said
    mean = run_document(view, made.summaries(view))["summaries"][0]["speedup"]
    assert (mean["n"], mean["of"]) == (1, 2)
    assert "no mean" not in report(made.view([known]))


@pytest.mark.parametrize(
    ("passed", "counted", "said"),
    [(199, 200, "99 %"), (1, 300, "1 %"), (0, 3, "0 %"), (3, 3, "100 %"), (0, 0, "")],
)
def test_pass_rates_are_not_rounded_to_certainty(passed: int, counted: int, said: str) -> None:
    assert pass_words(PassRate(passed, counted, counted)) == (f"{passed}/{counted}", said)


def test_the_libraries_that_models_come_from_are_named() -> None:
    view = made.small()
    run = replace(view.run, packages={"transformers": "5.1.0", "timm": "1.0.9", "gone": ""})
    head = " ".join(report(replace(view, run=run), width=200).splitlines()[:3])
    assert "torch 2.13.0+cpu · timm 1.0.9 · transformers 5.1.0 · git" in head
    assert "gone" not in head
    document = run_document(replace(view, run=run), made.summaries(view))
    assert document["run"]["packages"] == dict(run.packages)


def test_a_long_run_shows_what_matters_and_says_where_the_rest_is() -> None:
    cases = [made.ok(made.key(f"same_{i:04d}"), 1.0) for i in range(260)]
    cases += [made.ok(made.key("slow"), 0.5), made.bad(made.key("dead"), Outcome.CRASH, "it died")]
    text = report(made.view(cases), width=100)
    assert row(text, "slow")
    assert re.search("^    dead +crash", text, re.M)
    assert len(re.findall("^    same_", text, re.M)) == MOST_CASES - 2
    assert "62 cases more: torchstone show 1jz3k4m --csv" in text


def test_the_work_grows_with_the_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: a column's width was measured anew in every row."""
    counted = Counter[int]()
    measure = table.cells

    def count_cells(text: str) -> int:
        counted[size] += 1
        return measure(text)

    monkeypatch.setattr(table, "cells", count_cells)
    for size in (50, 200):
        report(made.view([made.ok(made.key(f"model_{i:04d}")) for i in range(size)]), width=100)
    assert counted[200] < 6 * counted[50]
