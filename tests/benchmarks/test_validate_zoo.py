"""The zoo: every planted fault is caught for its reason, and nothing honest is called false."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import validate_zoo
import zoo_record
from zoo_entry import Entry, look
from zoo_honest import honest
from zoo_planted import planted
from zoo_real import real_entries

from tests.benchmarks.support import run
from torchstone.records import Check, Level, Result, from_data, to_data
from torchstone.validate import FunctionRule, known_rules, registry, run_rules

ONLY_NOTES = {"coverage", "precision", "same-time", "session"}
NOT_OF_THIS_RECORD = {"floor"}
"""It warns where floors decide; here neighbours do (tests/validate has the rule itself)."""


@pytest.mark.parametrize("entry", [*planted(), *honest()], ids=lambda entry: entry.name)
def test_every_record_is_judged_as_it_should_be(entry: Entry) -> None:
    seen = look(entry)
    assert seen.right, (seen.missing, seen.alarms, seen.messages)


def test_there_are_enough_of_both_and_no_two_of_one_name() -> None:
    assert len(planted()) >= 25
    assert len(honest()) >= 25
    names = [entry.name for entry in (*planted(), *honest(), *real_entries())]
    assert len(names) == len(set(names))


def test_every_rule_that_can_warn_has_a_planted_case() -> None:
    wanted = {re.split(":| or ", want)[0] for entry in planted() for want in entry.wanted}
    built_in = {p.name for p in known_rules() if p.value.startswith("torchstone.")}
    assert built_in - ONLY_NOTES - NOT_OF_THIS_RECORD <= wanted


def test_a_rule_that_says_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = [p.load() for p in known_rules() if p.name != "timer"]
    monkeypatch.setattr("zoo_entry.evaluate", lambda made: run_rules(silent, made))
    (entry,) = [entry for entry in planted() if entry.name == "a replaced timer"]
    seen = look(entry)
    assert (seen.word, seen.missing) == ("MISSED", ("timer:fail",))


def test_a_rule_that_cries_wolf_is_a_false_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    def loud(made: Result) -> Iterator[Check]:
        yield Check("loud", Level.WARN, "Wolf. Run.")

    loud_rule = FunctionRule("loud", "", loud)
    monkeypatch.setattr(
        "zoo_entry.evaluate", lambda m: (*registry.evaluate(m), *loud_rule.evaluate(m))
    )
    seen = look(honest()[0])
    assert (seen.word, seen.alarms) == ("FALSE ALARM", ("loud:warn",))
    caught = look(planted()[0])
    assert (caught.missing, caught.alarms) == ((), ("loud:warn",))


def test_the_right_rule_at_the_wrong_level_is_missed() -> None:
    entry = next(entry for entry in planted() if entry.wanted == ("utilisation:warn",))
    assert look(replace(entry, wanted=("utilisation:fail",))).word == "MISSED"


def test_the_stored_record_names_no_place() -> None:
    text = zoo_record.RECORD.read_text(encoding="utf-8")
    assert not re.findall(r'"/|\\\\|://', text)
    made = zoo_record.stored()
    assert from_data(Result, to_data(made)) == made
    assert all(arm.turns == () for arm in made.arms)


def test_records_alone_as_a_person_would_run_it(tmp_path: Path) -> None:
    out = tmp_path / "zoo.json"
    done = run("validate_zoo.py", "--records-only", "--only", "clock", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert {row["honest"] for row in rows} == {True, False}
    assert all(row["right"] and row["kind"] == "record" for row in rows)
    assert "missed 0" in done.stdout
    assert "false alarms 0" in done.stdout
    assert "ms a result" in done.stdout


def test_the_exit_code_tells_of_a_miss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zoo_entry.evaluate", lambda made: ())
    assert validate_zoo.main(["--records-only", "--only", "a peak of no"]) == 1
    assert "MISSED" in capsys.readouterr().out


@pytest.mark.slow
def test_real_arms_are_run() -> None:
    seen = {e.name: look(e) for e in real_entries() if e.name in ("constant", "never settles")}
    assert {one.word for one in seen.values()} == {"caught"}, seen
