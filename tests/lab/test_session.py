"""Objects of a session: measured in this process, put back as they were, reported in short."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

import torchstone
from torchstone.lab.api import BenchResult
from torchstone.lab.magics import load
from torchstone.lab.session import as_objects, is_object
from torchstone.records import Level, Outcome, UsageError, Verdict, from_data, to_data
from torchstone.records import Result as Record
from torchstone.workloads import Workload

NUMBERS = list(range(2000))
SHORT: dict[str, Any] = {"budget": 0.3}


def at_the_top() -> int:
    return sum(NUMBERS)


@pytest.fixture(scope="module")
def two() -> BenchResult:
    def loop() -> int:
        total = 0
        for number in NUMBERS:
            total += number
        return total

    return torchstone.compare(loop, lambda: sum(NUMBERS), budget=0.5)


def test_what_has_to_be_measured_where_it_lives() -> None:
    def local() -> None: ...

    assert all(map(is_object, (lambda: 1, local, [].append, Workload(local), (local, ()))))
    assert not any(map(is_object, ("a.py:make", at_the_top)))


def test_arms_by_number_and_by_name(two: BenchResult) -> None:
    assert two.arms.keys() == ["loop", "lambda"]
    assert two.arms["loop"] is two.arms[0]
    assert two.arms["lambda"].verdict is Verdict.FASTER
    assert two.verdict is Verdict.FASTER
    assert two.speedup == two.arms[1].speedup == two.comparisons[0].speedup
    assert two.speedup is not None
    assert two.speedup > 1.5
    assert two.arms[0].speedup is None
    with pytest.raises(KeyError, match="Did you mean loop"):
        two.arms["lop"]


@pytest.mark.slow
def test_an_effort_sets_what_is_not_given() -> None:
    fast = torchstone.bench(lambda: sum(NUMBERS), effort="fast", budget=0.2)
    assert (fast.method.effort, fast.method.margin, fast.method.within) == ("fast", 0.05, 0.05)
    assert torchstone.bench(lambda: 1, margin=0.5, **SHORT).method.margin == 0.5
    with pytest.raises(UsageError, match="no effort 'quick'"):
        torchstone.bench(lambda: 1, effort="quick")
    with pytest.raises(UsageError, match="total cannot be set"):
        torchstone.bench(lambda: 1, total=3.0)


def test_times_have_the_names_of_the_report(two: BenchResult) -> None:
    time = two.arms["loop"].time
    assert time is not None
    document = two.to_json()["arms"][0]["time"]
    assert (time.floor, time.typical, time.fastest) == tuple(
        document[name] for name in ("floor", "typical", "fastest")
    )
    assert time.fastest == min(time.samples)


def test_outputs_are_checked_and_what_is_left_out_is_said(two: BenchResult) -> None:
    for arm in two.arms:
        assert arm.outcome is Outcome.OK
        assert arm.agreement is not None
        assert arm.agreement.timed > 0
        assert arm.compile is None or arm.compile.cold_ns is None
    (said,) = [check for check in two.checks if check.rule == "session"]
    assert said.level is Level.NOTE
    assert "not over processes" in " ".join(said.message.split())
    assert two.method.session
    assert "objects of a session" in two.report(color=False)
    assert "this process, " in two.report(color=False)
    assert len(two.report(verbose=True)) > len(two.report())
    assert not [check for check in two.checks if check.level is Level.FAIL]


def test_the_repr_is_short_and_the_html_has_table_and_strips(two: BenchResult) -> None:
    lines = repr(two).splitlines()
    assert len(lines) == 4
    assert all(len(line) < 100 for line in lines)
    assert "faster" in lines[2]
    html = two._repr_html_()
    assert "<table>" in html
    assert "data:image/svg+xml;base64," in html
    assert "<script" not in html


def test_it_is_the_same_record(two: BenchResult) -> None:
    again = from_data(Record, to_data(two))
    assert again.arms[0].turns == two.arms[0].turns
    assert again.comparisons == two.comparisons


def test_a_wrong_answer_and_an_error_are_outcomes() -> None:
    def wrong() -> int:
        return 7

    def broken() -> int:
        raise ValueError("no such thing")

    result = torchstone.bench(lambda: sum(NUMBERS), wrong, broken, **SHORT)
    assert [arm.outcome for arm in result.arms] == [
        Outcome.OK,
        Outcome.WRONG_ANSWER,
        Outcome.ERROR,
    ]
    assert "no such thing" in result.arms["broken"].detail.message
    assert "in broken" in "\n".join(result.arms["broken"].detail.stderr)
    assert "wrong answer" in repr(result)
    with pytest.raises(UsageError, match="2 comparisons"):
        _ = result.speedup


def test_ctrl_c_keeps_what_there_is() -> None:
    calls = []

    def pressed() -> int:
        calls.append(1)
        if len(calls) > 3000:
            raise KeyboardInterrupt
        return len(NUMBERS)

    result = torchstone.bench(pressed, budget=30.0)
    assert result.method.stopped_by == "interrupt"


def test_random_numbers_of_the_session_go_on_where_they_were() -> None:
    random.seed(5)
    expected = random.Random(5).random()
    torchstone.bench(lambda: 1 + 1, **SHORT)
    assert random.random() == expected


def test_a_model_is_measured_with_its_inputs_and_stays_as_it_was() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    before, state = model[0].weight.clone(), torch.get_rng_state()
    x = torch.randn(4, 8)
    state = torch.get_rng_state()
    result = torchstone.bench(model, x, vs="aot_eager", threads=1, mode="inference", **SHORT)
    assert [arm.outcome for arm in result.arms] == [Outcome.OK] * 2, result.report()
    assert result.arms.keys() == ["eager", "aot_eager"]
    assert result.arms[0].agreement is not None
    assert result.arms[0].agreement.method == "fp64"
    result = torchstone.bench(model, (x,), mode="training", threads=1, **SHORT)
    assert result.arms[0].outcome is Outcome.OK, result.report()
    assert torch.equal(model[0].weight, before)
    assert model[0].weight.grad is None
    assert model[1].training
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)


def test_inputs_behind_an_object_belong_to_it() -> None:
    one, other = as_objects([len, ([1, 2],), (max, (1, 2))])
    assert (one[0], one[1].inputs) == ("len", ([1, 2],))
    assert (other[0], other[1].inputs) == ("max", (1, 2))
    (same,) = as_objects([len], inputs=([1],))
    assert same[1].inputs == ([1],)


@pytest.mark.parametrize(
    ("targets", "options", "said"),
    [
        ((lambda: 1, "model.py:make"), {}, "names a file"),
        ((42,), {}, "int cannot be measured"),
        ((lambda: 1,), {"python": "python3"}, "python cannot be set"),
        ((lambda: 1,), {"replicates": 3}, "replicates cannot be set"),
        ((lambda: 1,), {"vs": "inductr"}, "inductr"),
        ((lambda: 1,), {"vs": "inductor+dynamic"}, "cannot be measured in a session"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(
    targets: tuple[Any, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        torchstone.bench(*targets, **options)
    assert refused.value.remedy


def test_provisional_figures_of_a_session_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    torchstone.compare(lambda: sum(NUMBERS), at_the_top, budget=2.5, progress=True)
    said = capsys.readouterr().err
    assert re.search(r"provisional: lambda \S+ µs, at_the_top \S+ µs \S+× \(first calls\)", said)
    assert re.search(r"provisional: lambda .*, at_the_top .*× .* \(\d+ stretch(es)?\)", said)


def test_a_misspelt_option_of_the_magic_is_named() -> None:
    known: dict[str, Any] = {}

    class Shell:
        def register_magic_function(self, magic: Any, *_: str) -> None:
            known["torchstone"] = magic

    load(Shell())
    with pytest.raises(UsageError, match="no option --buget"):
        known["torchstone"]("sum([1]) --buget 1")
