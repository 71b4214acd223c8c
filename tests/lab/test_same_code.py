"""Whether a change can have touched what two arms ran, and whether other programs ran beside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchstone.lab.check import busy_notes
from torchstone.lab.revisions import same_code
from torchstone.records import ArmSpec, Check, Environment, Level, Measurement, Outcome


def arm(imports: str, **packages: str) -> Measurement:
    environment = Environment("m", imports=imports, packages=packages)
    return Measurement(ArmSpec("a", "bench.py:step()"), Outcome.OK, environment=environment)


@pytest.mark.parametrize(
    ("imports", "changed", "same"),
    [
        ("1", ["README.md", "other.py"], True),
        ("1", ["data.json"], False),
        ("1", ["docs/conf.py", "docs/logo.png", ".github/workflows/test.yml"], True),
        ("", ["README.md", "docs/guide.rst"], True),  # a model of a suite: nothing of ours is run
        ("", ["other.py"], False),
        ("", [], True),
    ],
)
def test_what_may_have_been_read(imports: str, changed: list[str], same: bool) -> None:
    assert same_code(arm(imports), arm(imports), changed) is same


def test_other_code_and_other_packages_are_not_the_same() -> None:
    assert not same_code(arm("1"), arm("2"), ["README.md"])
    assert not same_code(arm("1", numpy="2.0"), arm("1", numpy="2.1"), ["README.md"])


def result(*checks: Check) -> Any:
    return SimpleNamespace(checks=checks)


def test_other_work_on_the_machine_is_told() -> None:
    busy = result(Check("noise", Level.WARN, "..."), Check("probe", Level.FAIL, "..."))
    calm = result(Check("noise", Level.OK, "..."), Check("timer", Level.WARN, "..."))
    assert busy_notes([calm]) == ()
    (note,) = busy_notes([busy, calm, busy])
    assert "busy with other work during 2 of 3 measurements" in note
