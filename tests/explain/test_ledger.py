"""From passes to lines: what was planted comes out, and what does not fit stays unexplained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.ledger_synthetic import ARM, BINDING, EVENT, FLOOR, costs, passes, step
from tests.explain.synthetic import calibration, flops
from torchstone.explain.ledger import TITLES, interpreter_words, make_ledger
from torchstone.explain.lines import blocked_of, split_round
from torchstone.explain.passes.deeper import gil_state
from torchstone.explain.passes.report import Block, Watched
from torchstone.explain.rounds import pooled, quartile
from torchstone.records import Contract

CALLS = 100


def test_the_planted_parts_come_out() -> None:
    found = make_ledger(
        ARM, passes(*[step(python=2e6, kernel=3e6, sleep=4e6)] * 3, blocks=(SLEEP,))
    )
    wall = found.wall_s * 1e9
    assert wall == pytest.approx(2e6 + 3e6 + 4e6 + CALLS * (BINDING + FLOOR))
    assert found.share("interpreter") * wall == pytest.approx(2e6)
    assert found.share("kernels") * wall == pytest.approx(3e6)
    assert found.share("dispatch") * wall == pytest.approx(CALLS * (BINDING + FLOOR))
    assert found.share("sleep") * wall == pytest.approx(4e6)
    assert found.share("rest") == pytest.approx(0, abs=1e-9)


SLEEP = Block("sleep", "time.sleep", "model.py:3", 4e6, 0.0, 1.0)


def test_levels_that_divide_the_wall_time_add_up() -> None:
    found = make_ledger(ARM, passes(*[step(collecting=1e6, wait=3e5, faults=100)] * 4))
    total = sum(line.share for level in (0, 1, 2, 3, -1) for line in found.level(level))
    assert total == pytest.approx(1.0)
    assert found.share("collector") * found.wall_s == pytest.approx(1e-3)
    assert found.share("contention") * found.wall_s == pytest.approx(3e-4)
    assert found.share("allocator") * found.wall_s == pytest.approx(100 * 500e-9)


def test_the_deeper_levels_divide_the_kernels() -> None:
    contract = Contract(inputs=(), outputs=(), parameter_dtypes={"float32": 10})
    counted = flops(60_000_000, 20 << 20, 4 << 20)
    seen = passes(flops=counted, contract=contract)
    found = make_ledger(ARM, seen, calibration())
    for level in (4, 5):
        total = sum(line.seconds for line in found.level(level))
        assert total == pytest.approx(found.share("kernels") * found.wall_s)
    assert [line.name for line in found.level(4)] == ["MKL"]


def test_sleep_that_nobody_saw_stays_unexplained() -> None:
    found = make_ledger(ARM, passes(*[step(sleep=4e6)] * 3))
    assert found.share("rest") * found.wall_s == pytest.approx(4e-3)
    assert any("is not explained" in text for text in found.checks)


def test_a_lock_without_a_call_is_seen_from_outside() -> None:
    one = step(sleep=4e6)
    share = 4e6 / one.plain.wall
    seen = Watched(looks=1000, running=round(1000 * (1 - share)), lock=round(1000 * share))
    found = make_ledger(ARM, passes(one, one, one, watched=seen))
    assert found.share("locks") == pytest.approx(share, abs=0.002)
    assert abs(found.share("rest")) < 0.002


def test_the_interpreters_lock() -> None:
    one = step(sleep=4e6)
    one = replace(one, plain=replace(one.plain, python_threads=4e6))
    share = 4e6 / one.plain.wall
    seen = Watched(looks=1000, running=round(1000 * (1 - share)), gil=round(1000 * share))
    found = make_ledger(ARM, passes(one, one, one, watched=seen))
    assert found.share("gil") == pytest.approx(share, abs=0.002)
    assert "has a lock, and the step waited for it" in found.interpreter
    guessed = make_ledger(ARM, passes(one, one, one, watched=Watched(reason="no /proc")))
    assert guessed.share("gil") == pytest.approx(share, abs=0.002)
    assert "inferred, because nobody could look: no /proc" in guessed.interpreter


def test_nobody_waits_for_the_lock_of_threads_that_did_not_run() -> None:
    found = make_ledger(ARM, passes(*[step(sleep=4e6)] * 3, watched=Watched(reason="no /proc")))
    assert found.share("gil") == 0


def test_a_free_threaded_interpreter_says_so() -> None:
    class FreeThreaded:
        """Stands in for `sys` of an interpreter that is not to be had here."""

        @staticmethod
        def _is_gil_enabled() -> bool:
            return False

    class Switched:
        @staticmethod
        def _is_gil_enabled() -> bool:
            return True

    assert (gil_state(FreeThreaded), gil_state(Switched), gil_state(object())) == (
        "off",
        "on",
        "on",
    )
    seen = passes(facts={"gil": "off", "threads": "1", "cores": "2"})
    assert "free-threaded" in interpreter_words(seen, [])


def test_the_tracers_cost_is_taken_from_the_step_itself_within_bounds() -> None:
    one = step()
    assert one.traced is not None
    blocked = blocked_of((), Watched(looks=1))
    dearer = replace(one, traced=_with_events(one, 1.5))
    assert split_round(dearer, costs(), blocked, 1).event == pytest.approx(1.5 * EVENT)
    absurd = replace(one, traced=_with_events(one, 10))
    assert split_round(absurd, costs(), blocked, 1).event == pytest.approx(2 * EVENT)


def _with_events(one, times):  # type: ignore[no-untyped-def]
    more = (times - 1) * EVENT * CALLS
    traced = one.traced
    places = {
        name: replace(place, own=place.own + more / 2) for name, place in traced.places.items()
    }
    ops = tuple(replace(op, own=op.own + more / 2) for op in traced.ops)
    return replace(traced, places=places, ops=ops, cpu=traced.cpu + more)


def test_a_core_that_ran_slower_for_a_while_changes_no_share() -> None:
    one = step()
    assert one.traced is not None
    slower = replace(
        one.traced,
        places={n: replace(p, own=p.own * 1.08) for n, p in one.traced.places.items()},
        ops=tuple(replace(op, own=op.own * 1.08) for op in one.traced.ops),
    )
    found = make_ledger(ARM, passes(*[replace(one, traced=slower)] * 3))
    right = make_ledger(ARM, passes(*[one] * 3))
    assert abs(found.share("rest")) < 0.01
    for name in ("interpreter", "kernels", "dispatch"):
        assert found.share(name) == pytest.approx(right.share(name), abs=0.03)


def test_one_bad_round_does_not_matter() -> None:
    good, bad = step(), step(python=9e6)
    found = make_ledger(ARM, passes(good, good, good, bad))
    assert found.share("interpreter") * found.wall_s == pytest.approx(2e-3)
    assert pooled((good, bad, good)).plain.steps == 150
    assert quartile([4.0, 1.0, 3.0, 2.0, 5.0]) == 2.0


def test_every_line_of_a_round_has_a_title() -> None:
    blocks = tuple(
        Block(kind, "f", "x.py:1", 1e5, 1e4, 1.0)
        for kind in ("sleep", "lock", "file", "network", "loading", "torch", "other")
    )
    split = split_round(step(sleep=1e6), costs(), blocked_of(blocks, Watched()), 2)
    assert set(split.lines) <= set(TITLES)


def test_a_target_without_torch_is_all_python() -> None:
    bare = replace(step(), traced=None)
    found = make_ledger(ARM, passes(bare, bare, facts={"gil": "on", "cores": "1"}))
    assert found.share("interpreter") == pytest.approx(1.0)
    assert found.level(2) == found.level(3) == ()


def test_doubts_are_said() -> None:
    noisy = make_ledger(ARM, passes(*[step(wait=5e6)] * 3, steady=False))
    assert any("waited for a core" in text for text in noisy.checks)
    assert any("did not become steady" in text for text in noisy.checks)
    assert make_ledger(ARM, passes()).checks == ()
