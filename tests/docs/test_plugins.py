"""The worked examples of docs/reference/plugins.md, installed and used."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read_page
from tests.examples.running import bench, environment, torchstone
from torchstone.store import open_store

PAGE = ROOT / "docs" / "reference" / "plugins.md"
_TABLE = re.compile(r'^\[project\.entry-points\."([\w.]+)"\]\n((?:[\w-]+ = "[^"]+"\n)+)', re.M)


def entry_points() -> dict[str, dict[str, str]]:
    """What the page puts into pyproject.toml, by group."""
    groups: dict[str, dict[str, str]] = {}
    for group, lines in _TABLE.findall(PAGE.read_text(encoding="utf-8")):
        for name, value in re.findall(r'([\w-]+) = "([^"]+)"', lines):
            groups.setdefault(group, {})[name] = value
    return groups


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The page's modules and their entry points, as an installer would leave them."""
    place = tmp_path / "site"
    info = place / "my_plugins-1.0.dist-info"
    info.mkdir(parents=True)
    files = read_page(PAGE).files
    assert files
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugins\nVersion: 1.0\n")
    config = configparser.ConfigParser(delimiters=("=",))
    config.read_dict(entry_points())
    with open(info / "entry_points.txt", "w", encoding="utf-8") as file:
        config.write(file)
    env = environment()
    env["PYTHONPATH"] = f"{place}:{env['PYTHONPATH']}"
    return env


@pytest.mark.slow
def test_the_target_and_the_rule_work(installed: dict[str, str], tmp_path: Path) -> None:
    targets = ("toy:median-1000", "toy:median-100", "--independent")
    document = bench(*targets, cwd=tmp_path, env=installed)
    assert [arm["outcome"] for arm in document["arms"]] == ["ok", "ok"]
    found = [check for check in document["checks"] if check["rule"] == "short-step"]
    assert [check["level"] for check in found] == ["note", "note"]
    assert found[0]["arms"] == [document["arms"][0]["name"]]


@pytest.mark.slow
def test_the_suite_runs(installed: dict[str, str], tmp_path: Path) -> None:
    few = ("--exclude", "median-1000", "--variants", "eager", "--replicates", "1")
    words = ("run", "toy", *few, "--budget-per-case", "0.2s", "--db", "kept.db")
    done = torchstone(*words, cwd=tmp_path, env=installed)
    assert done.returncode == 0, done.stderr
    with open_store(str(tmp_path / "kept.db"), read_only=True) as store:
        found = store.run_view("last").complete
    assert [case.key.name for case in found] == ["toy/median-100 inference fp32 eager"]
    assert [case.outcome.value for case in found] == ["ok"]


@pytest.mark.slow
def test_the_variant_works(installed: dict[str, str], tmp_path: Path) -> None:
    target = str(ROOT / "examples" / "two_layer.py:make")
    document = bench(target, "--vs", "one-thread", "--replicates", "1", cwd=tmp_path, env=installed)
    assert [arm["name"] for arm in document["arms"]] == ["eager", "one-thread"]
    assert [arm["outcome"] for arm in document["arms"]] == ["ok", "ok"]
    assert document["arms"][1]["environment"]["threads"]["torch"] == 1
