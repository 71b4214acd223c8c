"""Arms that die are stored beside those that do not, by the real command, and shown again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.targets.support import HONEST, target, torchstone

DEAD = {
    "segfault": ("crash", "SIGSEGV"),
    "hard_exit": ("crash", "exited with code 3"),
    "raises_in_build": ("error", "broken while building"),
}


def test_the_result_is_stored_with_every_death_in_it(tmp_path: Path) -> None:
    db = str(tmp_path / "kept.db")
    arms = [
        word for name in DEAD for word in ("--arm", f"name={name} target={target('deaths', name)}")
    ]
    broken = target("broken_import", "make")
    done = torchstone(
        "bench", HONEST, *arms, "--arm", f"name=broken target={broken}",
        "--budget", "1s", "--replicates", "2", "--db", db, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stdout
    shown = torchstone("show", "last", "--json", "-", "--db", db, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    found: dict[str, Any] = {arm["name"]: arm for arm in json.loads(shown.stdout)["arms"]}
    honest = next(arm for name, arm in found.items() if name not in (*DEAD, "broken"))
    assert honest["outcome"] == "ok"
    assert honest["time"]["samples"]
    for name, (outcome, words) in DEAD.items():
        assert found[name]["outcome"] == outcome
        assert words in found[name]["outcome_detail"]["message"]
    assert found["broken"]["outcome"] == "error"
    assert found["broken"]["outcome_detail"]["phase"] == "import"
    assert "broken while importing" in found["broken"]["outcome_detail"]["message"]
