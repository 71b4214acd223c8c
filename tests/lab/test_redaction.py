"""What an arm was given in secret is in no file that we leave behind."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.explain.ledger_synthetic import ledger
from tests.targets.support import QUICK, ROOT, settings, target
from tests.targets.talkative import AWS_KEY
from torchstone.conductor import Settings
from torchstone.lab.bench import bench, time_statements
from torchstone.lab.peaks import look_again
from torchstone.lab.recording import Recorder
from torchstone.lab.repro import repro
from torchstone.lab.request import BenchRequest, make_arms
from torchstone.lab.secrets import (
    HIDDEN,
    public_arm_text,
    public_ledger,
    public_measurement,
    public_words,
)
from torchstone.records import (
    Agreement,
    ArmSpec,
    Comparison,
    Contract,
    Graphs,
    Leaf,
    LedgerLine,
    LedgerPart,
    Measurement,
    Outcome,
    OutcomeDetail,
    Prediction,
    SourceLine,
    UsageError,
    Verdict,
    Verification,
    to_data,
)
from torchstone.show.markdown import dumps, markdown
from torchstone.show.terminal import report

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
    result = bench(request, Recorder(str(db)))
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
    recorder = Recorder(str(tmp_path / "kept.db"))
    setup, statement = f"key = '{SECRET}'", f"assert key == '{SECRET}'"
    settings = Settings(budget_s=0.2, loops=5, samples=2, replicates=2)
    result = time_statements([statement], setup, settings, recorder=recorder)
    assert result.arms[0].outcome is Outcome.OK  # what ran was the statement as it was given
    texts = [dumps(result).encode(), *(file.read_bytes() for file in tmp_path.iterdir())]
    for text in texts:
        assert SECRET.encode() not in text
    with pytest.raises(UsageError, match="kept without the secret"):
        repro(result, trust=True, recorder=None)


def test_an_arm_without_a_name_is_not_named_by_its_secrets() -> None:
    request = BenchRequest(targets=(target("honest"),), arms=(f"env.MY_TOKEN={SECRET} threads=2",))
    arm = make_arms(request)[1]
    assert arm.env == (("MY_TOKEN", SECRET),)  # the arm itself still gets it
    assert SECRET not in arm.name
    assert arm.name.startswith("env.MY_TOKEN=")


def test_a_second_look_that_fails_does_not_quote_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("torchstone.lab.peaks.SHORTEST_S", 0.1)
    env = (("MY_TOKEN", SECRET),)
    base = ArmSpec("slow", target("talkative", "answers_plainly"), env=env)
    new = ArmSpec("fast", target("talkative", "answers_with_it"), env=env)
    first = Comparison("slow", "fast", Verdict.FASTER, "floor", 0.01, (0.009, 0.011))
    look = look_again(base, new, first, settings(), None)
    assert look.outcome == "wrong_answer"
    assert "is not 'nothing to see'" in look.reason
    assert SECRET not in look.reason


def test_a_value_off_the_allow_list_is_in_no_sentence_that_is_kept() -> None:
    value = "an ordinary value"
    arm = ArmSpec("eager", "model.py:make", env=(("MY_SETTING", value),))
    said = f"it was {value}"
    made = Measurement(
        arm,
        Outcome.WRONG_ANSWER,
        OutcomeDetail(said, stderr=(said,)),
        contract=Contract((Leaf(f"input.{value}", "python", "int64"),), (), notes=(said,)),
        agreement=Agreement("none", said, mismatch=said),
        graphs=Graphs(break_reasons=(said,)),
        notes=(said,),
    )
    assert json.dumps(to_data(made)).count(value) == 9
    kept = public_measurement(made)
    assert value not in json.dumps(to_data(kept))
    assert kept.notes == ("it was ***",)


def test_a_ledger_is_kept_without_the_secrets_that_it_quotes() -> None:
    arm = ArmSpec("eager", "model.py:make", env=(("MY_TOKEN", SECRET),))
    guard = f"L['key'] == '{SECRET}'"
    place = SourceLine(guard, "model.py", 3)
    made = replace(
        ledger(),
        arm=arm,
        lines=(
            LedgerLine(1, "interpreter", "Python", 1.0, 1.0, 0.0, (LedgerPart("f", 1, 1, guard),)),
        ),
        findings=(Prediction("breaks", 1, "t", guard, "a", 1.0, (0.5, 1.0), places=(place,)),),
        verifications=(Verification("breaks", (0.5, 1.0), sentence=guard),),
        breaks=(place,),
        recompiles=(place,),
        checks=(guard,),
        notes=(guard,),
        facts={"said": guard},
    )
    text = json.dumps(to_data(made))
    assert text.count(SECRET) == 10
    kept = public_ledger(made, arm)
    assert SECRET not in json.dumps(to_data(kept))
    assert kept.arm.env == (("MY_TOKEN", HIDDEN),)
    assert kept.breaks[0].reason.startswith("L['key'] == ")
    assert (kept.breaks[0].line, kept.wall_s, kept.id) == (3, made.wall_s, made.id)
    plain = ledger()
    assert public_ledger(plain, plain.arm) == plain


# Commands


@pytest.mark.parametrize(
    "code", ["obs = env.step(0)", "env.x = 'it\\'s'", "env.name = 'a  b'; env.reset()"]
)
def test_code_that_has_an_env_of_its_own_is_kept_as_it_is(code: str) -> None:
    words = ("torchstone", "timeit", "-s", code, "--vs", code, code)
    assert public_words(words) == words


def test_only_what_follows_arm_is_read_as_one() -> None:
    words = ("torchstone", "bench", "m.py:make", "--arm", f"name=b env.MINE={SECRET}")
    assert public_words(words)[-1] == f"name=b env.MINE={HIDDEN}"
    assert public_words(["--arm", f"env.MINE='{SECRET}"]) == ("--arm", HIDDEN)
    assert public_words([f"--arm=env.MINE={SECRET}"]) == (f"--arm=env.MINE={HIDDEN}",)
    kept = public_arm_text("name=\"it's\" env.OMP_NUM_THREADS=2 target='a b.py:make'")
    assert shlex.split(kept) == ["name=it's", "env.OMP_NUM_THREADS=2", "target=a b.py:make"]
