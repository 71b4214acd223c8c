"""`torchstone tune` as a user calls it, with techniques that help, lie, crash and hang."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.targets.planted_techniques import NAMES
from tests.targets.support import ROOT
from torchstone.store import open_store

TARGET = f"{ROOT / 'tests' / 'targets' / 'busy.py'}:make"
QUICK = ("--allocator", "keep", "--timeout", "3s", "--build-timeout", "15s")
HELPFUL = ("FASTER", "ZEROS", "STALE", "SAME")
BROKEN = (*(name for name in NAMES if name not in HELPFUL), "ELSEWHERE", "BROKEN")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The planted techniques, as an installer would leave them."""
    place = tmp_path_factory.mktemp("site")
    info = place / "planted-1.0.dist-info"
    info.mkdir()
    source = ROOT / "tests" / "targets" / "planted_techniques.py"
    (place / "planted_techniques.py").write_text(source.read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    names = [*NAMES, "ELSEWHERE"]
    lines = [f"planted_{name.lower()} = planted_techniques:{name}" for name in names]
    lines.append("planted_broken = planted_techniques:NOT_THERE")
    (info / "entry_points.txt").write_text("\n".join(["[torchstone.techniques]", *lines, ""]))
    path = os.pathsep.join((str(place), str(ROOT / "src")))
    return {**os.environ, "PYTHONPATH": path}


def torchstone(
    *words: str, env: dict[str, str], cwd: Path, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchstone", *words],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", f"planted_{name.lower()}")]


@pytest.fixture(scope="module")
def tuned(
    installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """One tuning with every kind of technique in it."""
    folder = tmp_path_factory.mktemp("tuned")
    words = ("tune", TARGET, *only(*HELPFUL), *QUICK, "--budget", "60s", "--db", "t.db")
    done = torchstone(*words, "--json", "found.json", env=installed, cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "report.txt").write_text(done.stdout)
    return folder, json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def broken(
    installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, str]]:
    """One tuning in which nothing comes to be timed."""
    folder = tmp_path_factory.mktemp("broken")
    words = ("tune", TARGET, *only(*BROKEN), *QUICK, "--budget", "400s", "--no-save", "--json", "-")
    done = torchstone(*words, env=installed, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["adopted"] == []
    assert found["headline"].startswith("Leave it as it is")
    return decisions(found)


def decisions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The last word on each technique."""
    return {
        one["technique"].removeprefix("planted_"): (one["decision"], one["reason"])
        for one in found["experiments"]
        if one["stage"] != "confirm"
    }


@pytest.mark.slow
def test_only_what_helps_and_answers_rightly_is_adopted(
    tuned: tuple[Path, dict[str, Any]],
) -> None:
    _, found = tuned
    assert found["adopted"] == ["planted_faster"], decisions(found)
    assert found["state"] in ("complete", "out of time")
    for name in ("zeros", "stale"):
        assert decisions(found)[name][0] == "wrong answer"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "decision", "said"),
    [
        ("slower", "stopped early", "times as long"),
        ("crash", "failed", "crash"),
        ("hang", "failed", "timeout"),
        ("error", "failed", "it does not like this model"),
        ("refusal", "not applicable", "no such layer"),
        ("elsewhere", "not applicable", "no unicorn"),
        ("broken", "not applicable", "cannot be loaded"),
    ],
)
def test_whatever_goes_wrong_is_a_row_with_its_reason(
    broken: dict[str, tuple[str, str]], name: str, decision: str, said: str
) -> None:
    seen = broken[name]
    assert seen[0] == decision, seen
    assert said in seen[1]


@pytest.mark.slow
def test_the_winner_is_confirmed_from_the_recipe_file(tuned: tuple[Path, dict[str, Any]]) -> None:
    folder, found = tuned
    (confirmed,) = [one for one in found["experiments"] if one["stage"] == "confirm"]
    assert confirmed["decision"] == "adopted"
    assert confirmed["arm"]["variant"] == f"recipe:{found['recipe_path']}"
    assert confirmed["speedup"] > 2
    assert Path(found["recipe_path"]).parent == folder
    text = Path(found["recipe_path"]).read_text()
    assert text == found["recipe"]
    assert "times as fast" in (ast.get_docstring(ast.parse(text)) or "")
    assert "def planted_faster" in text


@pytest.mark.slow
def test_the_report_has_the_ladder_and_the_rules(tuned: tuple[Path, dict[str, Any]]) -> None:
    report = (tuned[0] / "report.txt").read_text()
    for words in ("+planted_faster", "planted_zeros", "confirmed from the recipe file", "5.0 %"):
        assert words in report


@pytest.mark.slow
def test_it_is_stored_with_its_evidence(
    tuned: tuple[Path, dict[str, Any]], installed: dict[str, str]
) -> None:
    folder, found = tuned
    with open_store(str(folder / "t.db"), read_only=True) as store:
        stored = store.load_tuning(found["id"])
        assert stored.adopted == ("planted_faster",)
        assert len(stored.experiments) == len(found["experiments"])
        for one in stored.experiments:
            if one.time_ratio is not None:
                assert store.load(one.result_id).kind == "tune"
        (listed,) = store.list_tunings()
    assert (listed.id, listed.adopted) == (found["id"], ("planted_faster",))
    shown = torchstone("show", found["id"], "--markdown", "--db", "t.db", env=installed, cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert "planted&#95;faster" in shown.stdout or "planted_faster" in shown.stdout


@pytest.mark.slow
def test_the_recipe_can_be_measured_by_itself(
    tuned: tuple[Path, dict[str, Any]], installed: dict[str, str]
) -> None:
    folder, found = tuned
    words = ("bench", TARGET, "--vs", f"recipe:{found['recipe_path']}", "--budget", "1s")
    done = torchstone(*words, "--no-save", "--json", "-", env=installed, cwd=folder)
    assert done.returncode == 0, done.stderr
    (comparison,) = json.loads(done.stdout)["comparisons"]
    assert comparison["time_ratio"] < 0.5


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_known_and_resume_goes_on(
    installed: dict[str, str], tmp_path: Path
) -> None:
    """The second batch hangs; the first is known by then."""
    names = only("ZEROS", "SLOWER", "CRASH", "HANG")
    words = ("tune", TARGET, *names, "--allocator", "keep", "--db", "t.db", "--timeout", "300s")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchstone", *words],
        env=installed,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "planted_crash" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "--resume" in said
    with open_store(str(tmp_path / "t.db"), read_only=True) as store:
        stored = store.load_tuning("last")
    assert stored.state == "interrupted"
    assert {one.technique: one.decision.value for one in stored.experiments} == {
        "planted_zeros": "wrong answer",
        "planted_slower": "stopped early",
        "planted_crash": "failed",
        "planted_hang": "not run",
    }
    again = torchstone(
        *(
            "tune",
            "--resume",
            stored.id,
            "--db",
            "t.db",
            "--timeout",
            "2s",
            "--build-timeout",
            "15s",
        ),
        *("--json", "-"),
        env=installed,
        cwd=tmp_path,
    )
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert found["id"] == stored.id
    assert decisions(found)["hang"][0] == "failed"
    done = [one["technique"] for one in found["experiments"] if one["decision"] != "not run"]
    assert sorted(done) == sorted(set(done)), "nothing is measured twice"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tune",), "Name a target"),
        (("tune", TARGET, "--only", "channel_last"), "channels_last"),
        (("tune", TARGET, "--goal", "fast"), "goal"),
        (("tune", TARGET, "--allow", "anything"), "tier"),
        (("tune", "nowhere.py:make"), "nowhere.py"),
        (("tune", TARGET, "--metric", "nowhere.py:f"), "nowhere.py"),
        (("tune", TARGET, "--metric", TARGET), "fails with the target as it is"),
        (("tune", "--resume", "zzz", "--db", "t.db"), "t.db"),
    ],
)
def test_mistakes_cost_one_sentence(
    words: tuple[str, ...], said: str, installed: dict[str, str], tmp_path: Path
) -> None:
    done = torchstone(*words, env=installed, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_techniques_are_listed_with_reasons(installed: dict[str, str], tmp_path: Path) -> None:
    done = torchstone("list", "techniques", "--json", env=installed, cwd=tmp_path)
    rows = {one["name"]: one for one in json.loads(done.stdout)["techniques"]}
    assert rows["planted_faster"]["source"] == "planted"
    assert rows["channels_last"]["inputs"] == ["permuted strides"]
    assert "no unicorn" in rows["planted_elsewhere"]["missing"]
    assert "cannot be loaded" in rows["planted_broken"]["missing"]
    assert rows["tf32"]["missing"]


@pytest.mark.slow
def test_the_budget_bounds_everything(installed: dict[str, str], tmp_path: Path) -> None:
    """With every technique there is, one that hangs, and time for only a few: the rest says why."""
    words = ("tune", TARGET, "--budget", "20s", "--allocator", "keep", "--no-save", "--json", "-")
    began = time.monotonic()
    done = torchstone(*words, env=installed, cwd=tmp_path)
    elapsed = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["state"] == "out of time"
    assert elapsed <= 2 * 20 + 20, "the budget is a contract; the slack is for starting and ending"
    assert any("budget" in reason for _, reason in decisions(found).values())
    assert not any("--total" in reason for _, reason in decisions(found).values())
