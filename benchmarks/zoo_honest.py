"""Honest measurements of many kinds, made of the stored record; nothing may be said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zoo_entry import Entry
from zoo_record import (
    EAGER_S,
    INDUCTOR_S,
    ceilings,
    counted,
    eager,
    inductor,
    larger,
    result,
    surroundings,
    with_noise,
    with_turns,
)

from torchstone.records import (
    Agreement,
    Flops,
    Integrity,
    Measurement,
    OpWork,
    Outcome,
    OutcomeDetail,
    Peak,
    Remeasurement,
    Result,
    Statement,
)

MIB = 1 << 20
FP32 = next(p for p in ceilings().compute if p.dtype == "fp32")
MEMORY = max(p.value for p in ceilings().bandwidth if p.level == "DRAM")


def honest() -> tuple[Entry, ...]:
    """All of them."""
    return (*_sizes(), *_work(), *_settings(), *_machines(), *_speedups())


def _pair(times: float) -> Result:
    """The same model so many times as large."""
    work = larger(times)
    return result(eager(EAGER_S * times, flops=work), inductor(INDUCTOR_S * times, flops=work))


def _sizes() -> tuple[Entry, ...]:
    return (
        Entry("eager and compiled", result),
        Entry("a model of 14 µs", lambda: _pair(0.01)),
        Entry("a model ten times as large", lambda: _pair(10)),
        Entry("a model of a quarter of a second", lambda: _pair(180)),
        Entry("an arm alone", lambda: result(eager())),
        Entry("four arms", _four),
        Entry("identical arms", lambda: result(eager(), eager(EAGER_S, "again"))),
        Entry("a compiled arm that is slower", lambda: result(eager(), inductor(1.3 * EAGER_S))),
    )


def _four() -> Result:
    others = [("inductor", INDUCTOR_S), ("aot_eager", 1.5e-3), ("jit-trace", 1.38e-3)]
    return result(eager(), *(inductor(s, name, variant=name) for name, s in others))


def product(share: float) -> Flops:
    """A matrix product of that share of the peak in 5 ms."""
    total = round(share * FP32.value * 5e-3)
    return Flops(
        total=total,
        by_op={"aten.mm": total},
        ops=1,
        ops_covered=1,
        time_covered=1.0,
        bytes=3 * MIB,
        least_bytes=3 * MIB,
        heaviest=(OpWork("aten.mm", 1, total, 3 * MIB, 5_000_000),),
        time_understood=1.0,
        largest_bytes=3 * MIB,
    )


def streaming(op: str, size: int, total: int = 0) -> Flops:
    """One op that goes over so many bytes."""
    return Flops(
        total=total,
        by_op={op: total} if total else {},
        ops=1,
        ops_covered=bool(total),
        time_covered=float(bool(total)),
        uncovered=() if total else (op,),
        bytes=size,
        least_bytes=size,
        heaviest=(OpWork(op, 1, total or None, size, 1),),
        time_understood=1.0,
        largest_bytes=size,
    )


def _at(flops: Flops, seconds: float, name: str = "eager", **changes: Any) -> Result:
    return result(eager(seconds, name, flops=flops, **changes))


def _work() -> tuple[Entry, ...]:
    size = 384 * MIB
    adding, reading = streaming("aten.add", size), streaming("aten.sum", size)
    vector = streaming("aten.mv", size, size // 2)
    cached = streaming("aten.add", MIB)
    one = counted()
    small = replace(larger(1e-4), ops=900)
    unknown = replace(one, time_covered=0.3, time_understood=0.4, uncovered=("mine.op",))
    outside = replace(one, heaviest=tuple(replace(w, time_ns=w.time_ns // 9) for w in one.heaviest))
    return (
        Entry("a matrix product at 92 % of the peak", lambda: _at(product(0.92), 5e-3)),
        Entry("a matrix product at 99 % of the peak", lambda: _at(product(0.99), 5e-3)),
        Entry("an addition near the memory peak", lambda: _at(adding, size / (0.95 * MEMORY))),
        Entry("a sum a little over the triad", lambda: _at(reading, size / (1.15 * MEMORY))),
        Entry("a vector times a matrix, memory-bound", lambda: _at(vector, size / (0.97 * MEMORY))),
        Entry("an addition within a cache", lambda: _at(cached, MIB / 60e9)),
        Entry("900 ops of a microsecond", lambda: _at(small, 1.2e-3)),
        Entry("a slow step in Python", lambda: _at(outside, 30e-3)),
        Entry("ops that no formula knows", lambda: _at(unknown, EAGER_S)),
        Entry("no operations counted", lambda: result(eager(flops=None), inductor(flops=None))),
        Entry("training", _training),
        Entry("bf16 where it is emulated", _narrow),
        Entry("shapes that vary", _shapes),
    )


def _training() -> Result:
    work = larger(3)
    arms = [
        replace(arm, flops=work, arm=replace(arm.arm, mode="training"))
        for arm in (eager(3.3 * EAGER_S), inductor(3.1 * INDUCTOR_S))
    ]
    return result(*arms)


def _narrow() -> Result:
    narrow = [arm(60e-3, precision="bf16") for arm in (eager, inductor)]
    return result(
        eager(), *(replace(m, arm=replace(m.arm, name=f"{m.arm.name} bf16")) for m in narrow)
    )


def _shapes() -> Result:
    return result(eager(0.3 * EAGER_S, shapes=4), inductor(0.3 * INDUCTOR_S, shapes=4))


def _with(name: str, **changes: Any) -> Result:
    return result(eager(), inductor(INDUCTOR_S, name, **changes))


def _settings() -> tuple[Entry, ...]:
    place = surroundings()
    return (
        Entry("two threads, asked for", lambda: _two_threads(0.6)),
        Entry(
            "another interpreter, asked for",
            lambda: _with(
                "python3.13",
                python="python3.13",
                environment=replace(place, python={"version": "3.13.1"}),
            ),
        ),
        Entry(
            "another torch, asked for",
            lambda: _with(
                "2.12",
                python="venv-2.12/bin/python",
                environment=replace(place, torch={"version": "2.12.0"}),
            ),
        ),
        Entry(
            "another allocator, asked for",
            lambda: _with(
                "jemalloc", allocator="jemalloc", environment=replace(place, allocator="jemalloc")
            ),
        ),
        Entry(
            "a variable of the environment",
            lambda: _with("flag", env=(("TORCHINDUCTOR_FREEZING", "1"),)),
        ),
        Entry("two statements", lambda: _statements(1.2)),
        Entry("a statement 40 times as fast", lambda: _statements(40)),
        Entry("another implementation in Python", _elsewhere),
    )


def _two_threads(times: float) -> Result:
    both = [replace(p, threads=2, value=1.9 * p.value) for p in ceilings().compute]
    wide = [replace(p, threads=2, value=1.4 * p.value) for p in ceilings().bandwidth]
    calibration = ceilings(
        compute=(*ceilings().compute, *both), bandwidth=(*ceilings().bandwidth, *wide)
    )
    two = replace(surroundings(), threads={"torch": 2})
    more = eager(times * EAGER_S, "two threads", threads=2, environment=two)
    return result(eager(), more, calibration=calibration)


def _statements(times: float) -> Result:
    def statement(name: str, seconds: float) -> Measurement:
        bare: dict[str, Any] = {"flops": None, "contract": None, "agreement": None, "graphs": None}
        return eager(seconds, name, target="", statement=Statement(name), **bare)

    return result(statement("sorted(x)", 1e-3), statement("x.sort()", 1e-3 / times))


def _elsewhere() -> Result:
    """An arm without torch: nothing of it can be counted or watched."""
    bare = {"flops": None, "contract": None, "agreement": Agreement("exact", checked=4, timed=3)}
    place = replace(surroundings(), torch={}, threads={})
    return result(
        eager(EAGER_S, "loop", target="loop.py:make", environment=place, **bare),
        eager(0.5 * EAGER_S, "map", target="map.py:make", environment=place, **bare),
    )


def _machines() -> tuple[Entry, ...]:
    def counters(share: float, **values: Any) -> Result:
        """Counters in that share of the turns."""
        arm = inductor()
        limit = round(share * len(arm.turns))
        turns = [
            replace(t, noise=replace(t.noise, **values)) if i < limit else t
            for i, t in enumerate(arm.turns)
        ]
        return result(eager(), replace(arm, turns=tuple(turns)))

    sleeping = with_noise(
        eager(5e-3, "sleeper", target="sleeper.py:make", flops=None),
        lambda n: {"cpu_ns": n.wall_ns // 5, "wait_ns": 0},
    )
    table = replace(FP32, value=1.1 * FP32.value, source="datasheet")
    sparse = replace(FP32, value=2 * FP32.value, sparse=True, source="datasheet")
    faults = with_turns(inductor(), lambda t: {"minor_faults": 20 * len(t.wall_ns)})
    late = {"late_cpu_ns": 8_000_000, "quiet_after_ns": 9_000_000}
    return (
        Entry("one disturbed turn in ten", lambda: counters(0.1, wait_ns=3_000_000)),
        Entry("an arm that sleeps", lambda: result(eager(5e-3, "eager", flops=None), sleeping)),
        Entry("threads that spin for 8 ms after a turn", lambda: counters(1.0, **late)),
        Entry("a few page faults more", lambda: result(eager(), faults)),
        Entry(
            "a machine that was never calibrated", lambda: result(calibration=None, clocks_hz=())
        ),
        Entry("a boosted clock", lambda: result(clocks_hz=(3.24e9, 3.3e9))),
        Entry("a table's peak that agrees", lambda: result(calibration=_with_peaks(table))),
        Entry(
            "a sparse peak beside the dense one", lambda: result(calibration=_with_peaks(sparse))
        ),
        Entry("an arm that ran out of memory", _failed),
        Entry("a call repeated with warm caches", _warm),
    )


def _with_peaks(*more: Peak) -> Any:
    return ceilings(compute=(*ceilings().compute, *more))


def _failed() -> Result:
    detail = OutcomeDetail(message="killed for lack of memory", phase="first call")
    dead = replace(
        inductor(), outcome=Outcome.OOM, detail=detail, turns=(), replicates=(), flops=None
    )
    return result(eager(), dead)


def _warm() -> Result:
    facts = Integrity(same_input_ns=1_100_000, fresh_input_ns=1_130_000, again_ns=300_000)
    return result(eager(), inductor(integrity=facts))


def _speedups() -> tuple[Entry, ...]:
    def confirmed(times: float, again: float) -> Result:
        ends = (0.96 / again, 1.04 / again)
        look = Remeasurement("eager", "inductor", 7919, times, again, ends)
        return result(
            eager(flops=None), inductor(EAGER_S / times, flops=None), remeasurements=(look,)
        )

    def over_compiled() -> Result:
        look = Remeasurement("inductor", "mine", 7919, 3.0, 2.9, (0.33, 0.36))
        mine = eager(EAGER_S / 3, "mine", target="mine.py:make", flops=None)
        return result(inductor(EAGER_S, flops=None), mine, remeasurements=(look,))

    def threads() -> Result:
        cpu = {**surroundings().cpu, "affinity": "8", "logical_cores": "8"}
        many = replace(surroundings(), threads={"torch": 8}, cpu=cpu)
        new = inductor(EAGER_S / 5, "8 threads", threads=8, environment=many, flops=None)
        return result(inductor(EAGER_S, flops=None), new)

    return (
        Entry(
            "6 times as fast as eager",
            lambda: result(eager(flops=None), inductor(EAGER_S / 6, flops=None)),
        ),
        Entry("12 times as fast, and 11 when looked at again", lambda: confirmed(12, 11)),
        Entry("3 times as fast as a compiler, confirmed", over_compiled),
        Entry("5 times as fast on 8 threads", threads),
        Entry("2 % faster", lambda: result(eager(), inductor(EAGER_S / 1.025))),
    )
