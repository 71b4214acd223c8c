"""What a calibration holds for, how long, and what cannot be asked of it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from tests.machine.support import run
from torchstone.machine import hardware, processes
from torchstone.machine.calibrate import fingerprint, is_stale, make_request, request
from torchstone.machine.calibrate.request import (
    DTYPES,
    SECONDS,
    STALE_AFTER_DAYS,
)
from torchstone.machine.processes import usable_cores
from torchstone.records import Calibration, UsageError

NOW = datetime(2030, 1, 31, 12, tzinfo=timezone.utc)


def made(days_ago: float, print_: str = "f") -> Calibration:
    created = (NOW - timedelta(days=days_ago)).isoformat(timespec="seconds")
    return Calibration("id", "machine", print_, created)


@pytest.mark.parametrize(
    ("days", "stale"),
    [(0, False), (STALE_AFTER_DAYS - 1, False), (STALE_AFTER_DAYS + 1, True), (-2, True)],
)
def test_it_grows_old(days: float, stale: bool) -> None:
    assert is_stale(made(days), NOW, "f") is stale


def test_it_is_stale_for_another_machine_schema_or_date() -> None:
    assert is_stale(made(1), NOW, "g")
    assert is_stale(replace(made(1), schema=99), NOW, "f")
    assert is_stale(replace(made(1), created="last Tuesday"), NOW, "f")
    assert is_stale(replace(made(1), created=""), NOW, "f")
    # Without a time zone, taken as universal time.
    assert not is_stale(replace(made(1), created="2030-01-30T12:00:00"), NOW, "f")
    assert not is_stale(made(1), NOW.replace(tzinfo=None), "f")


def test_the_fingerprint_follows_what_decides_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {fingerprint()}
    assert {fingerprint(), fingerprint("cpu", "AMD EPYC")} == seen  # the processor's name is known

    def grown(value: str) -> bool:
        known = value in seen
        seen.add(value)
        return not known

    assert grown(fingerprint("cuda", "one"))
    assert grown(fingerprint("cuda", "other"))
    assert fingerprint("cuda:1", "other") in seen  # its number among equals does not matter
    for module, name, value in (
        (request, "torch_version", "9.9"),
        (request, "usable_cores", 64),
        (hardware, "cache_sizes", {"L1d": 7}),
        (hardware, "describe_cpu", {"model": "another"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda value=value: value)
            assert grown(fingerprint()), name


def test_torch_is_described_without_being_imported() -> None:
    told = run(
        "import sys; from torchstone.machine.calibrate import fingerprint, request;"
        "print(request.torch_version(), fingerprint(), 'torch' in sys.modules)"
    )
    import torch

    assert told == f"{torch.__version__} {fingerprint()} False"


@pytest.mark.parametrize(("quota", "threads"), [(None, 4), (2.7, 2), (0.5, 1), (16.0, 4)])
def test_a_quota_limits_the_threads(
    quota: float | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "cpu_quota", lambda _: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6}, raising=False)
    assert usable_cores() == threads


def test_a_request_has_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.machine.calibrate.request.usable_cores", lambda: 8)
    whole = make_request()
    assert (whole.threads, whole.dtypes, whole.seconds) == ((1, 8), DTYPES, SECONDS)
    assert whole.wants("fp32", 1)
    one = make_request(only=[("fp32", 2)])
    assert one.dtypes == ("fp32",)
    assert one.seconds < 2
    assert one.wants("fp32", 2)
    assert not one.wants("fp32", 1)
    assert not one.whole
    memory = make_request(only=[("DRAM", 2)])
    assert (memory.dtypes, memory.threads) == ((), (2,))
    assert make_request("cuda").threads == (0,)


@pytest.mark.parametrize(
    "asked",
    [
        {"device": "Warp Drive!"},
        {"device": ""},
        {"dtypes": ["fp31"]},
        {"dtypes": ["tf32"]},  # the processor has no such
        {"only": [("fp31", 1)]},
        {"only": []},
        {"only": [("fp32", 0)]},
        {"threads": [0]},
        {"threads": [-2]},
        {"threads": [True]},
        {"seconds": 0.0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 1e9},
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_remedy(asked: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        make_request(**asked)  # type: ignore[arg-type]
    assert caught.value.remedy
