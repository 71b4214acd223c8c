"""`torchstone timeit` takes what `python -m timeit` takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tests.targets.support import torchstone
from torchstone.cli.bench import timeit
from torchstone.conductor import Settings

QUICK = ("--budget", "0.2s")


def measured(*words: str) -> Any:
    done = torchstone("timeit", *words, *QUICK, "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_number_and_repeat_are_kept_to() -> None:
    document = measured("-n", "7", "-r", "3", "sum(range(50))")
    time = document["arms"][0]["time"]
    assert time["calls_per_sample"] == 7
    assert {turn["samples"] for turn in time["turns"]} == {3}
    assert document["kind"] == "timeit"
    assert document["arms"][0]["outcome"] == "ok"


class Stop(Exception):
    """Instead of measuring."""


def asked(patch: pytest.MonkeyPatch, *words: str) -> tuple[Any, Settings, tuple[str, ...]]:
    """The arms, the settings and the command on record that these words stand for."""
    seen: list[Any] = []

    def measure(*arguments: Any) -> None:
        seen[:] = arguments
        raise Stop

    patch.setattr("torchstone.lab.bench.measure", measure)
    done = CliRunner().invoke(timeit, list(words))
    assert isinstance(done.exception, Stop), done.output
    return seen[0], seen[1], seen[4]


def test_a_number_of_zero_is_found_as_timeit_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "-n", "0", "pass")[1].loops is None
    assert asked(monkeypatch, "-n", "3", "pass")[1].loops == 3


@pytest.mark.parametrize(
    "words",
    [
        ("x + 1", "--vs", "x * 2", "--vs", "-x", "-s", "x = 3"),
        ("-n", "5", "-r", "2", "-p", "--budget", "500ms", "--python", "python3", "pass"),
        ("-s", "a = 1", "-s", "b = 2", "c = a", "for i in range(3):", "    c += b"),
        ("--", "-1"),
    ],
)
def test_the_command_on_record_asks_for_the_same_again(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asked(monkeypatch, *words)
    arms, _, command = first
    assert command[:2] == ("torchstone", "timeit")
    assert len(arms) == 1 + words.count("--vs")
    assert asked(monkeypatch, *command[2:]) == first


def test_no_secret_is_in_the_command_or_in_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2hunter2")
    arms, _, command = asked(monkeypatch, "-s", "a = 'hunter2hunter2'", "f('hunter2hunter2')")
    assert "hunter2" not in " ".join(command) + arms[0].name
    assert arms[0].statement.stmt == "f('hunter2hunter2')"  # what runs is what was given


def test_setup_is_run_anew_for_every_sample() -> None:
    document = measured("-n", "5", "-r", "4", "-s", "stack = list(range(6))", "stack.pop()")
    assert document["arms"][0]["outcome"] == "ok"


def test_a_setup_that_does_not_last_is_an_error_with_its_reason() -> None:
    done = torchstone(
        "timeit", "-n", "9", "-s", "stack = list(range(6))", "stack.pop()", *QUICK, "--json", "-"
    )
    assert done.returncode == 1
    (arm,) = json.loads(done.stdout)["arms"]
    assert arm["outcome"] == "error"
    assert "IndexError: pop from empty list" in arm["outcome_detail"]["message"]


@pytest.mark.slow
def test_several_lines_and_several_setups() -> None:
    words = ("-s", "a = 1", "-s", "b = 2", "c = a", "for i in range(3):", "    c += b")
    statement = measured("-n", "10", "-r", "2", *words)["arms"][0]["spec"]["statement"]
    assert statement["setup"] == "a = 1\nb = 2"
    assert statement["stmt"] == "c = a\nfor i in range(3):\n    c += b"


@pytest.mark.slow
def test_process_time_does_not_count_sleep() -> None:
    sleep = ("-n", "1", "-r", "2", "-s", "import time", "time.sleep(0.02)")
    wall = measured(*sleep)["arms"][0]["time"]["floor"]
    cpu = measured("-p", *sleep)["arms"][0]["time"]["floor"]
    assert cpu < wall / 4


@pytest.mark.parametrize(("unit", "shown"), [("nsec", "nsec"), ("msec", "msec")])
def test_the_answer_is_in_the_unit_asked_for(unit: str, shown: str) -> None:
    done = torchstone("timeit", "-u", unit, "-v", "-n", "10", "-r", "2", "sum(range(99))", *QUICK)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout or shown.replace("ec", "") in done.stdout
    assert "  ok timer: " in done.stdout  # -v tells every check


def test_statements_are_compared() -> None:
    document = measured("sum(range(200))", "--vs", "sum(range(500))")
    (comparison,) = document["comparisons"]
    assert comparison["time_ratio"] > 1
    assert comparison["verdict"] in ("slower", "cannot tell")


def test_threads_of_blas_are_set_and_named() -> None:
    words = ("--threads", "1", "-s", "import numpy; x = numpy.ones((64, 64))", "x @ x")
    document = measured(*words)
    arm = document["arms"][0]
    assert arm["spec"]["threads"] == 1
    assert (
        arm["environment"]["threads"].get("openblas", arm["environment"]["threads"].get("mkl")) == 1
    )
    assert document["command"][2:4] == ["--threads", "1"]


@pytest.mark.slow
def test_a_setup_that_imports_does_not_make_samples_long() -> None:
    """The import is in the first execution's setup alone: samples need not make up for it."""
    slow = (
        "import time, sys; 'seen' in sys.modules or (time.sleep(0.5), sys.modules.update(seen=1))"
    )
    document = measured("-s", slow, "time.sleep(0.002)")
    assert document["arms"][0]["time"]["calls_per_sample"] == 1
