"""Every verdict on the pages: its sign, its words, its place in the order, what is left open."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.show import synthetic_result, synthetic_run
from tests.web import stored
from tests.web.conftest import client_of
from torchstone.records import CaseKey, CaseMetrics, Verdict
from torchstone.show.cells import VERDICT_MARKS
from torchstone.show.page import MARKS
from torchstone.store import open_store
from torchstone.web.render import MARK_WORDS

PLANTED = {
    "slow": (-0.2, 0.004, Verdict.SLOWER, "▼", "worse"),
    "quick": (0.2, 0.004, Verdict.FASTER, "▲", "better"),
    "downward": (-0.03, 0.0105, Verdict.NOT_FASTER, "≤", "not better"),
    "unclear": (0.0, 0.05, Verdict.CANNOT_TELL, "?", "cannot tell"),
    "upward": (0.03, 0.0105, Verdict.NOT_SLOWER, "≥", "not worse"),
    "alike": (0.0, 0.001, Verdict.SAME, "=", "same"),
}
"""How the log speed-up of a model changed, its error in each run, and what is to be said of it; in
the order in which a comparison lists them."""


def case(key: CaseKey, log: float) -> CaseMetrics:
    half = 0.01
    made = synthetic_run.ok(key, math.exp(log), half, verdict=Verdict.FASTER, result_id="")
    return replace(made, log_error=PLANTED[key.model][1], log_freedom=5.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("verdicts") / "verdicts.db"
    keys = [synthetic_run.key(model, suite="timm") for model in sorted(PLANTED)]
    made = synthetic_result.cannot_tell()
    (comparison,) = made.comparisons
    with open_store(str(found)) as store:
        for night in range(2):
            run = stored.make_run(night, keys)
            store.begin_run(run)
            logs = [0.3 + night * PLANTED[key.model][0] for key in keys]
            cases = [case(key, log) for key, log in zip(keys, logs, strict=True)]
            store.add_cases(run.id, None, list(enumerate(cases)))
        for verdict in (Verdict.NOT_SLOWER, Verdict.NOT_FASTER, Verdict.CANNOT_TELL):
            open_one = replace(comparison, verdict=verdict, deciding_budget_s=45.0, threshold=0.01)
            name = verdict.value.replace(" ", "-")
            store.save(replace(made, id=name, comparisons=(open_one,)))
    return found


def test_every_verdict_has_a_sign_and_words() -> None:
    assert set(VERDICT_MARKS) == set(Verdict)
    marks = set(VERDICT_MARKS.values())
    assert len(marks) == len(Verdict)
    assert len({MARKS[mark] for mark in marks}) == len(Verdict)
    assert marks <= set(MARK_WORDS)


def test_the_comparison_lists_signs_and_counts_every_verdict(path: Path) -> None:
    with client_of(path) as client:
        page = client.get("/compare").text
        data = client.get("/api/v1/compare").json()
    rows = data["tables"]["cases"]["rows"]
    assert [row["model"] for row in rows] == list(PLANTED)
    assert [row["verdict"] for row in rows] == [one[2].value for one in PLANTED.values()]
    for model, (_, _, _, sign, words) in PLANTED.items():
        (row,) = re.findall(rf"<tr><th[^>]*><a [^>]*>{model}</a>.*?</tr>", page)
        assert f'aria-hidden="true">{sign}</span>' in row
        assert f'title="{words}; noise limit 1.0 %"' in row
    spent = synthetic_result.method().budget_s
    assert rows[0]["deciding_budget_s"] is None  # nothing is open
    assert all(rows[place]["deciding_budget_s"] > spent for place in (2, 4))
    assert rows[3]["deciding_budget_s"] is None  # not within an hour
    assert "raised as much, would probably tell 2 % in 2 of 3 cases still open" in page
    assert "≥ not worse, ≤ not better" in page
    (group,) = data["tables"]["groups"]["rows"]
    for verdict in Verdict:
        assert f"1 {verdict.value}" in group["verdicts"]
    assert "1 not worse" in page  # the key of the chart
    assert "1 not better" in page


@pytest.mark.parametrize("name", ["not-slower", "not-faster", "cannot-tell"])
def test_a_result_says_what_is_open_and_what_would_decide(path: Path, name: str) -> None:
    with client_of(path) as client:
        page = client.get(f"/result/{name}").text
        data = client.get(f"/api/v1/result/{name}").json()
    words = name.replace("-", " ")
    assert f"channels_last {words}: The interval is wider than the margin." in page
    assert "--budget 45s would probably tell 2 %." in page
    row = data["tables"]["arms"]["rows"][1]
    assert (row["verdict"], row["threshold"], row["deciding_budget_s"]) == (words, 0.01, 45.0)
