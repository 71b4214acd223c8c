"""Looks at steps on the pages of a case: found by the work they are of, with commands for more."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.explain.ledger_synthetic import ledger
from tests.show import synthetic_profile
from tests.show.synthetic_result import arm, two_faster
from tests.targets.support import HERE as TARGETS
from tests.targets.support import torchstone
from tests.web import stored
from tests.web.conftest import reading
from tests.web.test_views import cells, column, view
from torchstone.records import ArmSpec, Measurement
from torchstone.show.page import Code, Page, tables_of, walk
from torchstone.store import open_store
from torchstone.web.sources import DataAccess
from torchstone.web.views.parts import explain_commands, profile_commands

TARGET = "timm:resnet18@small"
VARIANTS = ("inductor", "inductor+dynamic", "aot_eager")


def commands(page: Page) -> dict[str, str]:
    return {one.name: one.text for one in walk(page.sections) if isinstance(one, Code)}


def measured(variant: str, **changes: object) -> Measurement:
    made = arm(variant, variant=variant)
    return replace(made, arm=replace(made.arm, target=TARGET, **changes))  # type: ignore[arg-type]


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A run whose one result holds three variants beside their baseline."""
    path = tmp_path / "several.db"
    keys = [
        replace(stored.keys(["timm"])[-1], variant=one, mode="training", threads=2)
        for one in VARIANTS
    ]
    arms = [measured(one, mode="training", threads=2, shapes=4) for one in ("eager", *VARIANTS)]
    result = replace(two_faster(), id="r1", kind="case", arms=tuple(arms), comparisons=())
    with open_store(str(path)) as store:
        run = stored.make_run(0, keys)
        store.begin_run(run)
        figures = [replace(stored.metrics_of(key, 0), result_id="r1") for key in keys]
        store.add_cases(run.id, result, list(enumerate(figures)))
    return path


def page_of(path: Path, variant: str) -> Page:
    with reading(path) as store:
        asked = {"suite": "timm", "model": "resnet18", "variant": variant}
        return view(DataAccess(store), "case", **asked)


def test_the_page_of_each_variant_prints_its_own_commands(several: Path) -> None:
    settings = "--mode training --threads 2 --allocator default"
    for variant in VARIANTS:
        found = commands(page_of(several, variant))
        assert found["explain"] == f"torchstone explain {TARGET} {settings} --vs {variant}"
        assert found["profile"].splitlines() == [
            f"torchstone profile {TARGET} {settings}",
            f"torchstone profile {TARGET} --variant {variant} {settings}",
        ]
    with reading(several) as store:
        whole = commands(view(DataAccess(store), "result", "r1"))
    assert [line.split()[-1] for line in whole["explain"].splitlines()] == [*VARIANTS]
    assert len(whole["profile"].splitlines()) == 4


def test_commands_carry_all_that_makes_an_arm_what_it_is() -> None:
    elsewhere = measured(
        "inductor", device="cuda:1", precision="bf16", env=(("A", "b c"),), allocator="keep"
    )
    words = shlex.split(explain_commands([elsewhere]))
    assert words[:3] == ["torchstone", "explain", TARGET]
    pairs = dict(zip(words[3::2], words[4::2], strict=True))
    assert pairs == {
        "--precision": "bf16",
        "--device": "cuda:1",
        "--allocator": "keep",
        "--env": "A=b c",
        "--vs": "inductor",
    }
    assert profile_commands([elsewhere]) == ""  # it has no --env, so it would be of another arm
    alone = measured("eager")
    assert explain_commands([alone]) == f"torchstone explain {TARGET} --allocator default"
    assert explain_commands([alone, measured("inductor", threads=3)]).count("\n") == 1
    statement = replace(alone, arm=ArmSpec("timed"))
    assert explain_commands([statement]) == profile_commands([statement]) == ""


def test_looks_at_one_shape_are_shown_beside_cases_of_several(several: Path) -> None:
    at = measured("inductor+dynamic", mode="training", threads=2)
    machine = at.environment.machine_id if at.environment else ""
    page = page_of(several, "inductor+dynamic")
    assert not any(name.startswith("ledger-") for name in tables_of(page))
    with open_store(str(several)) as store:
        store.save_ledger(ledger({"kernels": 0.6}, id="l", arm=at.arm, environment=at.environment))
        of_arm = {"arm": at.arm, "machine_id": machine}
        store.save_profile(replace(synthetic_profile.full(), id="p", **of_arm))
    tables = tables_of(page_of(several, "inductor+dynamic"))
    (told,) = (one for name, one in tables.items() if name.startswith("ledger-"))
    assert "Of one shape; the samples went through 4 in turn." in told.note
    assert cells(tables["profiles"], "profile", "p")["variant"].value == "inductor+dynamic"
    assert "Of one shape" in tables["profiles"].note
    other = tables_of(page_of(several, "aot_eager"))
    assert len(other["profiles"].rows) == 0
    assert not any(name.startswith("ledger-") for name in other)


@pytest.fixture
def measured_here(tmp_path: Path) -> Callable[[], Page]:
    """A case that `torchstone run` has really measured; its page."""
    toml = f'name = "toys"\n[[model]]\nname = "one"\ntarget = "{TARGETS}/honest.py:make"\n'
    (tmp_path / "toys.toml").write_text(toml)
    fast = ("--variants", "eager", "--budget-per-case", "0.3s", "--replicates", "2")
    done = torchstone("run", "toys.toml", *fast, "--db", "kept.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    def page() -> Page:
        with reading(tmp_path / "kept.db") as store:
            return view(DataAccess(store), "case", suite="toys", model="one")

    return page


@pytest.mark.slow
def test_the_printed_command_puts_a_profile_on_the_page(
    tmp_path: Path, measured_here: Callable[[], Page]
) -> None:
    page = measured_here()
    assert len(tables_of(page)["profiles"].rows) == 0
    program, *words = shlex.split(commands(page)["profile"])
    assert program == "torchstone"
    quick = ("--how", "count", "--steps", "3", "--no-cost", "--db", "kept.db")
    done = torchstone(*words, *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = tables_of(measured_here())["profiles"]
    assert [cell.value for cell in column(after, "how")] == ["count"]
    assert [cell.value for cell in column(after, "variant")] == ["eager"]
