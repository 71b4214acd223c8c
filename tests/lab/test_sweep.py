"""Sweeps: what is compared with what, one result of several cases, whole commands as arms."""

from __future__ import annotations

import shlex
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.show import synthetic_result
from torchstone.conductor import ArmNow, Settings
from torchstone.lab.database import validate_stored
from torchstone.lab.recording import Recorder
from torchstone.lab.repro import repro
from torchstone.lab.request import BenchRequest, command_of
from torchstone.lab.sweep import check_picture, evaluate_sweep, make_cases, merged, sweep
from torchstone.records import Outcome, Result, UsageError
from torchstone.show.markdown import document, markdown
from torchstone.show.sweep import sweep_svg
from torchstone.show.terminal import report
from torchstone.store import open_store

SOURCE = """
def make(size=10, twice=False, name="x"):
    assert isinstance(size, int) and isinstance(twice, bool) and isinstance(name, str)
    def step(numbers):
        return sum(numbers) * (2 if twice else 1)
    return step, (list(range(size)),)

def count(upto=3):
    return sum(range(upto))
"""
QUICK = Settings(budget_s=0.2, replicates=2, samples=6)
FAST, SLOW = [sys.executable, "-S", "-c", "pass"], [sys.executable, "-c", "import json, decimal"]


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "work.py").write_text(SOURCE)
    return f"{tmp_path / 'work.py'}:make"


def names(request: BenchRequest) -> list[list[str]]:
    return [[arm.name for arm in case] for case in make_cases(request)]


def test_arguments_of_a_factory_make_a_case_each(target: str) -> None:
    axes = (("size", ("1", "8")), ("twice", ("True", "False")))
    cases = make_cases(BenchRequest((target,), sweep=axes))
    assert [len(case) for case in cases] == [1, 1, 1, 1]
    assert cases[1][0].params == (("size", "1"), ("twice", "False"))
    assert cases[1][0].name == "size=1 twice=False"


def test_threads_and_precisions_are_arms_of_one_case(target: str) -> None:
    axes = (("threads", ("1", "2")), ("precision", ("fp32", "bf16")))
    (case,) = make_cases(BenchRequest((target,), sweep=axes))
    assert [(arm.threads, arm.precision) for arm in case] == [
        *((1, "fp32"), (1, "bf16")),
        *((2, "fp32"), (2, "bf16")),
    ]


def test_variants_are_compared_at_each_point(target: str) -> None:
    axes = (("size", ("1", "8")), ("threads", ("1", "2")))
    cases = names(BenchRequest((target,), vs=("jit-trace",), sweep=axes))
    assert cases == [
        [f"{variant} size={size} threads={threads}" for variant in ("eager", "jit-trace")]
        for size in (1, 8)
        for threads in (1, 2)
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sweep": (("threads", ("1", "many")),)}, "'many' is no number of threads"),
        ({"sweep": (("size", ("1",)), ("size", ("2",)))}, "size is swept twice"),
        ({"sweep": (("a", tuple(map(str, range(201)))),)}, "201 arms"),
        ({"sweep": (("precision", ("fp32", "fp8")),)}, "There is no precision 'fp8'"),
        ({"commands": ("true",)}, "cannot be compared with targets"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    target: str, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        make_cases(replace(BenchRequest((target,)), **changes))  # type: ignore[arg-type]


def test_a_suite_takes_no_arguments() -> None:
    with pytest.raises(UsageError, match="takes no batch"):
        make_cases(BenchRequest(("timm:resnet18",), sweep=(("batch", ("1",)),)))


def test_a_parameter_that_the_factory_lacks_is_named(target: str) -> None:
    with pytest.raises(UsageError, match="has no parameter 'depth'") as caught:
        sweep(BenchRequest((target,), sweep=(("depth", ("1", "2")),), settings=QUICK))
    assert caught.value.remedy == "It has size, twice, name."


def test_commands_take_the_values_that_are_swept() -> None:
    asked = BenchRequest((), commands=("sleep 0", "sleep {t}"), sweep=(("t", ("0.1", "0.2")),))
    assert names(asked) == [["sleep 0 t=0.1", "sleep 0.1"], ["sleep 0 t=0.2", "sleep 0.2"]]
    statements = [arm.statement.stmt for case in make_cases(asked) for arm in case if arm.statement]
    assert statements[1] == "run(['sleep', '0.1'])"


def test_the_command_says_it_again(target: str) -> None:
    asked = BenchRequest((target,), sweep=(("size", ("1", "8")),), commands=())
    assert "--sweep size=1,8" in " ".join(command_of(asked))


def swept() -> Result:
    """Two cases of two arms, made up."""
    cases = []
    for size in ("1", "8"):
        case = synthetic_result.two_faster()
        rename = {arm.arm.name: f"{arm.arm.name} batch={size}" for arm in case.arms}
        arms = tuple(
            replace(arm, arm=replace(arm.arm, name=rename[arm.arm.name], params=(("batch", size),)))
            for arm in case.arms
        )
        comparisons = tuple(
            replace(one, base=rename[one.base], new=rename[one.new]) for one in case.comparisons
        )
        cases.append(replace(case, arms=arms, comparisons=comparisons, checks=()))
    return merged(cases)


def test_cases_come_apart_as_they_were_put_together() -> None:
    whole = swept()
    one, two = whole.cases()
    assert [arm.arm.name for arm in one.arms] == ["eager batch=1", "inductor batch=1"]
    assert [c.new for c in two.comparisons] == ["inductor batch=8"]
    assert len(whole.arms) == 4
    assert whole.cases()[0].cases() == (whole.cases()[0],)


def test_rules_speak_of_each_case_against_its_own_baseline() -> None:
    again = evaluate_sweep(swept())
    assert [(c.base, c.new) for c in again.comparisons] == [
        ("eager batch=1", "inductor batch=1"),
        ("eager batch=8", "inductor batch=8"),
    ]


def test_one_table_one_picture_one_document() -> None:
    whole = swept()
    text = report(whole, width=120)
    assert text.count("baseline") == 2
    assert "torchstone repro" not in text
    assert markdown(whole).count("inductor batch=") >= 2
    assert [case["arms"] for case in document(whole)["sweep"]] == [2, 2]
    root = ET.fromstring(sweep_svg(whole))
    said = "".join(root.itertext())
    assert "Floor time per call by batch" in said
    assert "eager" in said
    assert "inductor" in said


def test_one_figure_leads_in_all_cases() -> None:
    one, two = swept().cases()
    by_pairs = tuple(replace(found, decided_by="pairs") for found in two.comparisons)
    whole = merged([one, replace(two, comparisons=by_pairs)])
    text = report(whole, width=160)
    assert "typical per call" in text
    assert "floor per call" not in text
    rows = [line for line in text.splitlines() if "batch=" in line and "█" in line]
    assert len(rows) == 4
    assert "Typical time per call by batch" in sweep_svg(whole)


class Watcher:
    """Everything that a person would see."""

    def __init__(self) -> None:
        self.expected: list[tuple[float, str]] = []

    def expect(self, seconds_left: float, why: str) -> None:
        self.expected.append((seconds_left, why))

    def note(self, text: str) -> None: ...
    def provisional(self, arms: Sequence[ArmNow]) -> None: ...
    def doing(self, text: str) -> None: ...
    def tick(self) -> None: ...
    def phase(self, text: str) -> None: ...
    def update(self, fraction: float, text: str, seconds_left: float | None) -> None: ...


def test_the_whole_time_is_for_all_cases(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shares, watcher = [0.0], list[float | None](), Watcher()

    def measured(
        arms: object, settings: Settings, recorder: object, told: Watcher, *_: object
    ) -> Result:
        told.expect(5.0, "checks 5 s")
        shares.append(settings.total_s)
        clock[0] += 12.0
        return synthetic_result.two_faster()

    monkeypatch.setattr("torchstone.lab.sweep.measure_unsaved", measured)
    monkeypatch.setattr("torchstone.lab.sweep.time.monotonic", lambda: clock[0])
    axes = (("size", ("1", "2", "3", "4")),)
    bounded = replace(QUICK, total_s=28.0)
    result = sweep(BenchRequest((target,), sweep=axes, settings=bounded), None, watcher)
    assert shares == [7.0, 16.0 / 3, 2.0]
    assert len(result.cases()) == 3
    assert result.method.stopped_by == "total"
    assert watcher.expected[0] == (20.0, "checks 5 s, then 3 more cases")
    sweep(BenchRequest((target,), sweep=axes, settings=QUICK), None, watcher)
    assert shares[-1] is None


def test_a_command_is_named_as_it_was_typed() -> None:
    (case,) = make_cases(BenchRequest((), commands=("sleep 0", "sleep 1")))
    arms = [replace(synthetic_result.arm(), arm=one) for one in case]
    text = report(synthetic_result.result(tuple(arms), ()))
    assert text.startswith("bench sleep 0, sleep 1 ")
    assert "  process" not in text  # memory of the one that waits for it


def test_a_picture_needs_a_sweep(target: str) -> None:
    with pytest.raises(UsageError, match="draws a sweep"):
        check_picture("x.svg", BenchRequest((target,)))
    check_picture(None, BenchRequest((target,)))


def test_a_sweep_is_one_stored_result(target: str, tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    asked = BenchRequest((target,), sweep=(("size", ("10", "20000")),), settings=QUICK)
    result = sweep(asked, Recorder(db))
    small, large = result.arms
    assert [arm.outcome for arm in result.arms] == [Outcome.OK, Outcome.OK]
    fastest = [min(ns for turn in arm.turns for ns in turn.wall_ns) for arm in (small, large)]
    assert fastest[1] / large.loops > 20 * fastest[0] / small.loops
    assert result.comparisons == ()
    with open_store(db) as store:
        assert len(store.list()) == 1
        assert store.load(result.id) == result
    (again,) = validate_stored(result.id, db, save=False)
    assert [c.rule for c in again.after.checks] == [c.rule for c in result.checks]
    with pytest.raises(UsageError, match="sweep of 2 cases") as caught:
        repro(result, trust=True, recorder=None)
    assert "--sweep size=10,20000" in caught.value.remedy


@pytest.mark.slow
def test_whole_commands_are_timed_and_compared() -> None:
    asked = BenchRequest((), commands=(shlex.join(SLOW), shlex.join(FAST)), settings=QUICK)
    result = sweep(asked)
    assert [arm.outcome for arm in result.arms] == [Outcome.OK, Outcome.OK]
    ratio = result.comparisons[0].time_ratio
    assert ratio is not None
    assert ratio < 1
    assert result.sweep == ()


def test_a_command_that_fails_says_why() -> None:
    asked = BenchRequest((), commands=("ls /no/such/folder",), settings=QUICK)
    (arm,) = sweep(asked).arms
    assert arm.outcome is Outcome.ERROR
    assert "exit code 2" in arm.detail.message
    assert "/no/such/folder" in arm.detail.message
    (arm,) = sweep(replace(asked, commands=("no-such-program-at-all",))).arms
    assert "cannot be started" in arm.detail.message
