"""The registry, how rules are run, and what happens when a rule itself is broken."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.show import synthetic_result
from tests.structure.places import ROOT
from tests.validate.cases import arm, pair, result
from torchstone.records import Check, Level, Result
from torchstone.validate import FunctionRule, evaluate, known_rules, run_rules

RULES = {
    "alike",
    "allocator",
    "clock",
    "constant-output",
    "coverage",
    "definition",
    "flops",
    "fresh-inputs",
    "identical",
    "late-work",
    "noise",
    "output-check",
    "peak",
    "plain-output",
    "probe",
    "profiler",
    "recompiles",
    "replicates",
    "roofline",
    "same-time",
    "steady",
    "time-floor",
    "timer",
    "too-good",
    "utilisation",
    "working-set",
}


def test_built_in_rules_are_registered_under_their_own_names() -> None:
    found = {point.name: point.load() for point in known_rules()}
    assert set(found) >= RULES
    for name in RULES:
        assert found[name].name == name
        assert found[name].source


def test_a_clean_pair_is_ok_by_every_rule() -> None:
    checks = evaluate(pair())
    assert {check.rule for check in checks} >= RULES
    assert [check for check in checks if check.level is not Level.OK] == []


def test_order_is_stable() -> None:
    first, second = evaluate(pair()), evaluate(pair())
    assert first == second
    names = [check.rule for check in first]
    assert names == sorted(names)


@pytest.mark.parametrize("name", synthetic_result.ALL)
def test_every_kind_of_result_is_evaluated_without_a_crash(name: str) -> None:
    made = synthetic_result.ALL[name]()
    for check in evaluate(made):
        assert "Error" not in check.message
        assert all(math.isfinite(value) for value in check.figures.values())
        assert set(check.arms) <= {a.arm.name for a in made.arms}


def test_a_result_without_arms_has_little_to_say() -> None:
    assert [c for c in evaluate(result()) if c.level in (Level.WARN, Level.FAIL)] == []


def test_every_message_that_is_not_ok_has_a_remedy() -> None:
    made = synthetic_result.ALL["hostile"]()
    for check in evaluate(made):
        if check.level is not Level.OK:
            assert len(re.findall(r"\.(?: |$)", check.message)) >= 2, check.message


def _good(result: Result) -> Iterator[Check]:
    yield Check("good", Level.OK, "Fine.")


def _raises_midway(result: Result) -> Iterator[Check]:
    yield Check("bad", Level.FAIL, "Found before it broke.", arms=("eager",))
    raise ZeroDivisionError("by\nnought")


def test_a_rule_that_raises_becomes_a_warning_and_loses_nothing() -> None:
    rules = [FunctionRule("bad", "", _raises_midway), FunctionRule("good", "", _good)]
    kept, broken, good = run_rules(rules, pair())
    assert kept.level is Level.FAIL
    assert (broken.rule, broken.level) == ("bad", Level.WARN)
    assert "ZeroDivisionError: by nought" in broken.message
    assert good.rule == "good"


def test_a_rule_that_gives_something_else_becomes_a_warning() -> None:
    odd = FunctionRule("odd", "", lambda result: ["no check"])  # type: ignore[list-item]
    (check,) = run_rules([odd], pair())
    assert check.level is Level.WARN
    assert "str instead of a Check" in check.message


PLUG_IN = """
import sys
from torchstone.validate import evaluate
from tests.validate.cases import pair
for check in evaluate(pair()):
    if check.rule in ("mine", "absent"):
        print(check.rule, check.level.value, check.message)
"""


def test_a_plug_in_is_found_and_a_broken_one_does_not_crash(tmp_path: Path) -> None:
    (tmp_path / "my_rules.py").write_text(
        "from torchstone.records import Check, Level\n"
        "class Mine:\n"
        "    name, source = 'mine', 'test'\n"
        "    def evaluate(self, result):\n"
        "        return [Check('mine', Level.NOTE, f'{len(result.arms)} arms.')]\n"
        "MINE = Mine()\n"
    )
    info = tmp_path / "my_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torchstone.rules]\nmine = my_rules:MINE\nabsent = my_rules:ABSENT\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PLUG_IN],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{tmp_path}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "mine note 2 arms." in done.stdout
    assert "absent warn The rule absent could not be loaded" in done.stdout


def test_every_rule_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    documented = re.findall(r"^- `([a-z-]+)`: ", page.partition("\n## ")[2], re.MULTILINE)
    built_in = [p.name for p in known_rules() if p.value.startswith("torchstone.")]
    assert sorted(documented) == sorted(built_in)


def test_evaluating_loads_neither_pandas_nor_scipy() -> None:
    code = (
        "import sys\n"
        "from torchstone.validate import evaluate\n"
        "from tests.validate.cases import pair\n"
        "assert len(evaluate(pair())) > 30\n"
        "print([m for m in ('pandas', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_package_loads_neither_torch_nor_the_conductor() -> None:
    code = (
        "import sys, torchstone.validate as v\n"
        "[p.load() for p in v.known_rules()]\n"
        "print([m for m in sys.modules if m == 'torch' or 'conductor' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_names_are_kept_on_one_line() -> None:
    made = result(arm("a = 1\nb = 2\n" + "x" * 300))
    assert all("\n" not in check.message and len(check.message) < 400 for check in evaluate(made))
