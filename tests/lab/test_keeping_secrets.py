"""What an arm was given in secret is in no file that we leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import QUICK, ROOT, target
from tests.targets.talkative import AWS_KEY
from torchstone.conductor import Settings
from torchstone.lab.bench import bench
from torchstone.lab.keeping import Keeper
from torchstone.lab.repro import repro
from torchstone.lab.request import BenchRequest, make_arms
from torchstone.lab.timing import time_statements
from torchstone.records import Outcome, UsageError
from torchstone.show import dumps, markdown, report

SECRET = "hunter2hunter2"


def test_a_secret_is_nowhere_in_what_is_stored_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = ("honest", "prints_then_dies", "raises_it", "answers_with_it")
    request = BenchRequest(
        targets=tuple(target("talkative", name) for name in names),
        arms=(f"env.MY_TOKEN={SECRET}more",),
        env=(("MY_TOKEN", SECRET),),
        settings=Settings(**QUICK),
    )
    db = tmp_path / "kept.db"
    result = bench(request, Keeper(str(db)))
    outcomes = [arm.outcome for arm in result.arms]
    assert outcomes == [
        Outcome.OK,
        Outcome.CRASH,
        Outcome.ERROR,
        Outcome.WRONG_ANSWER,
        Outcome.OK,
    ]
    assert "token is" in " ".join(result.arms[1].detail.stderr)
    assert "cannot log in" in result.arms[2].detail.message
    texts = [
        dumps(result).encode(),
        markdown(result).encode(),
        report(result, color=False, width=120, unicode=True, saved=True).encode(),
        *(file.read_bytes() for file in tmp_path.iterdir()),
    ]
    for text in texts:
        assert SECRET.encode() not in text
        assert AWS_KEY.encode() not in text


def test_a_sentence_that_quotes_an_output_hides_the_secret_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = ("answers_plainly", "answers_with_it")
    request = BenchRequest(
        targets=tuple(target("talkative", name) for name in names),
        env=(("MY_TOKEN", SECRET),),
        settings=Settings(**{**QUICK, "replicates": 1}),
    )
    result = bench(request)
    assert "is not 'nothing to see'" in result.arms[1].detail.message
    assert SECRET not in dumps(result)


def test_a_secret_in_a_statement_is_used_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    keeper = Keeper(str(tmp_path / "kept.db"))
    setup, statement = f"key = '{SECRET}'", f"assert key == '{SECRET}'"
    settings = Settings(budget_s=0.2, loops=5, samples=2, replicates=2)
    result = time_statements([statement], setup, settings, keeper=keeper)
    assert result.arms[0].outcome is Outcome.OK  # what ran was the statement as it was given
    texts = [dumps(result).encode(), *(file.read_bytes() for file in tmp_path.iterdir())]
    for text in texts:
        assert SECRET.encode() not in text
    with pytest.raises(UsageError, match="kept without the secret"):
        repro(result, trust=True, keeper=None)


def test_an_arm_without_a_name_is_not_named_by_its_secrets() -> None:
    request = BenchRequest(targets=(target("honest"),), arms=(f"env.MY_TOKEN={SECRET} threads=2",))
    arm = make_arms(request)[1]
    assert arm.env == (("MY_TOKEN", SECRET),)  # the arm itself still gets it
    assert SECRET not in arm.name
    assert arm.name.startswith("env.MY_TOKEN=")
