"""Profiling a target in a process of its own: what comes back, and how it can end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profile.probing import names, python_path
from tests.targets.support import target
from torchstone.lab import profile as lab_profile
from torchstone.lab.profile import ProfileRequest, ProfilingFailed, command_of, profile_target
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes import ProbeOptions
from torchstone.records import Profile, TorchstoneError, UsageError

pytestmark = pytest.mark.usefixtures("declared_path")


@pytest.fixture
def declared_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find what is declared, installed or not."""
    monkeypatch.setenv("PYTHONPATH", python_path())


def test_a_target_is_counted_and_says_what_that_cost() -> None:
    request = ProfileRequest(target("profiled"), how="count", steps=20)
    (profile,) = profile_target(request)
    check_profile(profile)
    assert profile.steps == 20
    heavy = next(f for f in profile.functions if profile.frames[f.of.frame].name == "heavy")
    assert heavy.of.calls == 20
    cost = profile.cost
    assert cost is not None
    assert cost.ratio.replicates >= 4
    for estimate in (cost.ratio, cost.control):
        low, high = estimate.interval
        assert 0 < low <= estimate.time_ratio <= high
    assert cost.unprofiled_s > 0
    assert cost.footprint_bytes > 1000
    assert profile.machine_id
    assert profile.command[:4] == ("torchstone", "profile", "--how", "count")
    assert "Python memory of a step" in {counter.name for counter in profile.counters}


def test_lines_of_the_targets_own_file_are_looked_at_unasked() -> None:
    request = ProfileRequest(target("profiled", "make_growing"), how="memory", cost=False)
    (profile,) = profile_target(request)
    assert profile.cost is None
    (table,) = profile.lines
    grown = max(range(len(table.lines)), key=table.increment.__getitem__)
    assert "large = " in table.text[table.lines[grown] - 1]
    assert profile.memory is not None
    assert profile.memory.peak_bytes > 64 << 20


@pytest.mark.parametrize(
    ("file", "name", "outcome", "said"),
    [
        ("deaths", "segfault", "crash", "SIGSEGV"),
        ("deaths", "raises_in_the_thousandth_call", "error", "broken in the thousandth call"),
        ("deaths", "raises_in_build", "error", "'build'"),
    ],
)
def test_a_target_that_fails_is_told_in_one_sentence(
    file: str, name: str, outcome: str, said: str
) -> None:
    request = ProfileRequest(target(file, name), how="count", steps=2000)
    with pytest.raises(ProfilingFailed) as error:
        profile_target(request)
    message = error.value.message
    assert f"could not be profiled (count): {outcome}" in message
    assert said in message
    assert "torchstone bench" in error.value.remedy or error.value.remedy
    assert error.value.exit_code == 1


@pytest.mark.slow
def test_what_was_profiled_before_a_variant_fails_is_kept() -> None:
    pytest.importorskip("torch")
    kept: list[Profile] = []
    request = ProfileRequest(target("nets"), how="count", vs=("cudagraphs",), steps=3, cost=False)
    with pytest.raises(TorchstoneError, match="CUDA"):
        profile_target(request, keep=kept.append)
    (profile,) = kept
    assert profile.label.endswith("eager (count)")
    assert profile.id  # as it would be stored


def test_a_step_that_hangs_is_stopped() -> None:
    request = ProfileRequest(
        target("deaths", "deadlock"), how="count", timeout_s=0.2, build_timeout_s=3.0
    )
    with pytest.raises(ProfilingFailed, match="timeout"):
        profile_target(request)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (ProfileRequest(target("profiled"), steps=0), "0 steps"),
        (ProfileRequest(target("profiled"), how="guess"), "no way to profile"),
        (ProfileRequest(target("profiled"), mode="no-such"), "no-such"),
        (ProfileRequest(target("profiled", "nothing")), "has no 'nothing'"),
        (ProfileRequest(target("profiled"), arguments=("x",)), "takes no arguments"),
        (
            ProfileRequest(target("profiled"), options=ProbeOptions(clock="gil"), how="sampler"),
            "GIL",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_a_process_starts(
    request_: ProfileRequest, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        profile_target(request_)


def test_the_command_asks_for_the_same_again() -> None:
    request = ProfileRequest(
        "a.py:make",
        how="memory",
        steps=3,
        mode="training",
        vs=("inductor",),
        options=ProbeOptions(rate_hz=50, functions=("f",)),
    )
    words = " ".join(command_of(request))
    assert words == (
        "torchstone profile --how memory --steps 3 --mode training --allocator default "
        "--vs inductor --rate 50 --functions f a.py:make"
    )


@pytest.mark.slow
def test_ways_side_by_side_on_a_network_in_training() -> None:
    pytest.importorskip("torch")
    request = ProfileRequest(target("nets"), how="all", mode="training", threads=1, steps=300)
    found = profile_target(request)
    assert [profile.how for profile in found] == ["count", "sample", "trace"]
    for profile in found:
        check_profile(profile)
        assert profile.cost is not None
    counters = {counter.name: counter.value for counter in found[0].counters}
    assert (counters["op aten.addmm"] or 0) >= 1
    assert {"aten::addmm", "ProfilerStep"} <= names(found[2].frames)
    assert "backward" in names(found[1].frames)
    assert found[0].label.endswith("nets.py:make (count)")
    assert not found[0].label.startswith("/")
    assert found[2].problems == ()
    for profile in (found[0], found[2]):  # what starts a step is not part of it
        assert profile.tree is not None
        files = {profile.frames[frame].file for frame in profile.tree.frames}
        assert not [file for file in files if file.endswith("torchstone/profile/child.py")]


@pytest.mark.parametrize(
    ("code", "words"), [(3, "with code 3"), (-11, "by SIGSEGV"), (-40, "by signal 40")]
)
def test_every_end_of_a_program_has_words(code: int, words: str) -> None:
    assert lab_profile._end(code) == words
