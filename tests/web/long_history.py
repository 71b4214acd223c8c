"""Two runs with more cases than a page has rows: what newly fails, what one run alone has, and
peaks that grew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.show import synthetic_profile
from tests.show.synthetic_run import bad, key, ok
from tests.web.stored import make_run
from torchstone.records import CaseKey, CaseMetrics, Outcome
from torchstone.store import open_store

PASSING, FAILING = 230, 205
PROFILES = 203
GREW = 1.15
OLD, NEW = "night00x", "night01x"
STEADY = [key(f"steady{n:03d}", suite="timm", mode="inference") for n in range(PASSING)]
BREAKING = [key(f"breaking{n:03d}", suite="huggingface", mode="inference") for n in range(FAILING)]
GONE = key("gone", suite="timm", mode="inference")
CAME = key("came", suite="timm", mode="inference")


def ended(one: CaseKey, night: int) -> CaseMetrics:
    """The breaking suite fails from the second night on; the other needs more memory."""
    if night and one in BREAKING:
        return replace(bad(one, Outcome.CRASH, "the worker died"), result_id="")
    peak = int(200 * 2**20 * (GREW if night else 1.0))
    return ok(one, result_id="", new_tensor_bytes=peak)


def make_long(path: Path) -> Path:
    """The database."""
    nights = ([*STEADY, *BREAKING, GONE], [*STEADY, *BREAKING, CAME])
    with open_store(str(path)) as store:
        for night, cases in enumerate(nights):
            run = make_run(night, cases)
            store.begin_run(run)
            figures = [(place, ended(one, night)) for place, one in enumerate(cases)]
            store.add_cases(run.id, None, figures)
        profile = synthetic_profile.full()
        for number in range(PROFILES):
            store.save_profile(replace(profile, id=f"prof{number:03d}"))
    return path
