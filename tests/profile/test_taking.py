"""`torchstone.profile()`: a context manager, a decorator, and the room of the same name."""

from __future__ import annotations

import asyncio
import pstats
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import torchstone
import torchstone.profile
from tests.profile.probing import names, roots
from tests.targets import profiled
from torchstone.records import UsageError


def test_a_stretch_of_code(tmp_path: Path) -> None:
    out = tmp_path / "x.prof"
    with torchstone.profile("count", out=out, label="mine") as taken:
        profiled.split()
    assert taken.profile is not None
    assert (taken.profile.how, taken.profile.label) == ("count", "mine")
    assert {"heavy", "light"} <= names(taken.profile.frames)
    stats = pstats.Stats(str(out)).stats  # type: ignore[attr-defined]
    assert any(key[2] == "heavy" for key in stats)


def test_what_was_not_measured_is_said() -> None:
    with torchstone.profile("count") as taken:
        profiled.light(1)
    assert taken.profile is not None
    assert any("What profiling costs was not measured" in note for note in taken.profile.notes)
    missing = {one.name: one for one in taken.profile.counters if one.value is None}
    assert "not measured" in missing["Python memory"].note
    assert ("ops by kind" in missing) == ("torch" in sys.modules)


def test_the_room_is_still_a_room() -> None:
    assert torchstone.profile.read_profile is not None
    assert torchstone.profile.__name__ == "torchstone.profile"


def test_a_decorator_profiles_each_call() -> None:
    taken = torchstone.profile("count")

    @taken
    def twice(number: int) -> int:
        return profiled.light(number) * 2

    assert taken.profile is None
    assert twice(1) == profiled.light(1) * 2
    assert taken.profile is not None
    assert taken.profile.label.endswith("twice")
    first = taken.profile.id
    twice(1)
    assert taken.profile.id != first


def test_a_recursion_is_one_profile() -> None:
    taken = torchstone.profile("count")

    @taken
    def factorial(number: int) -> int:
        return number * factorial(number - 1) if number else 1

    assert factorial(5) == 120
    assert taken.profile is not None
    frames = taken.profile.frames
    of = {frames[one.of.frame].name: one.of for one in taken.profile.functions}
    assert (of["factorial"].calls, of["factorial"].primitive) == (6, 1)
    assert factorial(1) == 1  # and it can be profiled again


def test_threads_may_call_at_once() -> None:
    taken = torchstone.profile("count")
    both = threading.Barrier(2, timeout=240)
    failed: list[BaseException] = []

    @taken
    def meet() -> None:
        both.wait()  # neither ends before the other has begun

    def call() -> None:
        try:
            meet()
        except BaseException as error:
            failed.append(error)
            both.abort()

    threads = [threading.Thread(target=call) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert taken.profile is not None


def test_a_coroutine_is_profiled_until_it_has_been_awaited() -> None:
    taken = torchstone.profile("count")

    @taken
    async def fetch(number: int) -> int:
        await asyncio.sleep(0.05)
        return profiled.light(number)

    async def both() -> list[int]:
        return await asyncio.gather(fetch(1), fetch(2))

    assert asyncio.run(both()) == [profiled.light(1), profiled.light(2)]
    assert taken.profile is not None
    assert "light" in names(taken.profile.frames)
    assert taken.profile.wall_s >= 0.05


def test_an_object_that_is_awaited_is_profiled() -> None:
    class Fetch:
        async def __call__(self) -> int:
            await asyncio.sleep(0.01)
            return profiled.light(1)

    taken = torchstone.profile("count", label="fetch")

    async def run() -> int:
        made: int = await taken(Fetch())()
        return made

    assert asyncio.run(run()) == profiled.light(1)
    assert taken.profile is not None
    assert "light" in names(taken.profile.frames)


def test_what_another_profiler_bars_runs_all_the_same() -> None:
    outer, inner = torchstone.profile("count"), torchstone.profile("count")

    @inner
    def within() -> int:
        return profiled.light(1)

    @outer
    def around() -> int:
        return within()

    assert around() == profiled.light(1)
    assert inner.profile is None
    assert outer.profile is not None
    assert "within" in names(outer.profile.frames)
    within()
    assert inner.profile is not None


def test_a_generator_is_refused_where_it_is_decorated() -> None:
    def some() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (some, later):
        with pytest.raises(UsageError, match="is a generator"):
            torchstone.profile("count")(function)


def test_an_error_inside_is_the_users_and_the_profile_is_kept() -> None:
    taken = torchstone.profile("count")
    with pytest.raises(ZeroDivisionError), taken:
        profiled.light(1 // 0)
    assert taken.profile is not None


def test_the_users_own_frame_is_the_root_of_samples() -> None:
    with torchstone.profile("sampler", rate=1000) as taken:
        for _ in range(60):
            profiled.split()
    assert taken.profile is not None
    assert roots(taken.profile) == {"test_the_users_own_frame_is_the_root_of_samples"}


def test_the_decorated_function_is_the_root_of_samples() -> None:
    taken = torchstone.profile("sampler", rate=1000)

    @taken
    def decorated() -> None:
        for _ in range(60):
            profiled.split()

    decorated()
    assert taken.profile is not None
    assert roots(taken.profile) == {"decorated"}


def test_one_profiler_cannot_be_on_twice() -> None:
    taken = torchstone.profile("count")
    with taken, pytest.raises(UsageError, match="on already"):
        taken.__enter__()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"how": "guess"}, "no way to profile called 'guess'"),
        ({"how": "sample", "clock": "moon"}, "no clock 'moon'"),
        ({"how": "sample", "rate": 0}, "cannot be taken"),
        ({"how": "count", "out": "x.unknown"}, "does not end in a way"),
        ({"how": "sampler", "clock": "gil"}, "cannot be told from inside"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said), torchstone.profile(**options):  # type: ignore[arg-type]
        pass
