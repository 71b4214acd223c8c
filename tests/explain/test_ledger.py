"""From passes to lines: what was planted comes out, and what does not fit stays unexplained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.ledger_synthetic import ARM, BINDING, EVENT, FLOOR, costs, passes, step
from tests.explain.synthetic import calibration, flops
from torchstone.explain.findings.hardware import device_copies
from torchstone.explain.ledger import TITLES, interpreter_words, make_ledger, pooled, quartile
from torchstone.explain.lines import _works, blocked_of, split_round
from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import ELSEWHERE, cut
from torchstone.explain.passes.floors import at_speed
from torchstone.explain.passes.report import Block, OpTime, Round, Watched
from torchstone.explain.passes.run import gil_state
from torchstone.records import Contract, OpWork, Peak

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


@pytest.mark.parametrize("kernel", [0.0, 2e4, 5e4, 3e6])
def test_a_node_takes_no_more_than_its_op_did(kernel: float) -> None:
    """Floors are measured where both operands ask for gradients; a node of one is cheaper."""
    one = step(python=2e6, kernel=kernel)
    assert one.traced is not None
    ops = tuple(replace(op, with_grad=op.calls) for op in one.traced.ops)
    one = replace(one, traced=replace(one.traced, ops=ops))
    node = 500.0
    known = costs(grad_floors={"aten::mm": costs().floors["aten::mm"] + node})
    found = make_ledger(ARM, passes(one, one, one, costs=known))
    wall = found.wall_s * 1e9
    assert found.share("autograd") * wall == pytest.approx(min(kernel, CALLS * node))
    assert found.share("kernels") * wall == pytest.approx(max(0.0, kernel - CALLS * node))
    assert found.share("dispatch") * wall == pytest.approx(CALLS * (BINDING + FLOOR))


def test_costs_are_taken_at_the_speed_of_the_steps() -> None:
    """Ops with nothing to do were called between the steps, and the core was slower then: what the
    op takes in the step is no kernel."""
    slow = 1.6
    one = step(python=2e6 * slow, kernel=0.0)
    assert one.traced is not None
    ops = tuple(replace(op, own=op.own * slow) for op in one.traced.ops)
    known, ignorant = (
        replace(one, traced=replace(one.traced, ops=ops, speeds=speeds))
        for speeds in ({"aten::mm": slow}, {})
    )
    lines = split_round(known, costs(), blocked_of((), Watched()), 1).lines
    assert lines["kernels"] == pytest.approx(0, abs=1)
    lines = split_round(ignorant, costs(), blocked_of((), Watched()), 1).lines
    assert lines["kernels"] > 1e4


def test_what_was_not_seen_between_the_steps_is_as_much_slower() -> None:
    known = costs(
        floors={"aten::mm": 100.0, "aten::add": 200.0, "aten::rare": 300.0},
        bindings={"aten::mm": 10.0, "aten::rare>aten::to": 30.0},
        grad_floors={"aten::mm": 150.0, "aten::add": 250.0},
        default_floor=50.0,
    )
    found = at_speed(known, {"aten::mm": 2.0, "aten::add": 2.0}, {"aten::mm": 3.0})
    assert found.floors == {"aten::mm": 200.0, "aten::add": 400.0, "aten::rare": 600.0}
    assert found.grad_floors == {"aten::mm": 450.0, "aten::add": 500.0}
    assert found.bindings == {"aten::mm": 20.0, "aten::rare>aten::to": 60.0}
    assert (found.default_floor, found.event) == (100.0, 2 * EVENT)
    assert at_speed(known, {}, {}) == known


PRICE = 3e4


def broken(one: Round, breaks: float = 4.0) -> Round:
    """The same step, its Python in graph breaks."""
    assert one.traced is not None
    places = {report.BREAK: one.traced.places[report.PYTHON]}
    return replace(one, traced=replace(one.traced, places=places, breaks=breaks))


def test_python_in_a_graph_break_is_pythons_but_for_the_price_of_the_break() -> None:
    one = broken(step(python=2e6, kernel=3e6, sleep=4e6))
    priced = costs(breaking=PRICE)
    found = make_ledger(ARM, passes(one, one, one, blocks=(SLEEP,), costs=priced))
    assert found.share("breaks") * found.wall_s == pytest.approx(4 * PRICE / 1e9)
    assert found.share("interpreter") * found.wall_s == pytest.approx(2e-3 - 4 * PRICE / 1e9)
    assert found.share("sleep") * found.wall_s == pytest.approx(4e-3)
    assert found.share("rest") == pytest.approx(0, abs=1e-9)


def test_breaks_take_no_more_than_there_is() -> None:
    one = broken(step(python=1e5), breaks=40.0)
    found = make_ledger(ARM, passes(one, one, one, costs=costs(breaking=PRICE)))
    assert found.share("breaks") * found.wall_s == pytest.approx(1e-4)
    assert found.share("interpreter") == 0


@pytest.mark.parametrize(("python", "breaks"), [(2e6, 4.0), (1.1e6, 10.0)])
def test_files_in_a_graph_break_are_counted_once(python: float, breaks: float) -> None:
    """Where Python alone does not hold the calls, the breaks give the rest."""
    reading = Block("files", "io.read", "x.py:2", 0.0, 1e6, 1.0)
    one = broken(step(python=python), breaks)
    priced = costs(breaking=PRICE)
    found = make_ledger(ARM, passes(one, one, one, blocks=(reading,), costs=priced))
    assert found.share("files") * found.wall_s == pytest.approx(1e-3)
    left = found.share("interpreter") + found.share("breaks")
    assert left * found.wall_s == pytest.approx(python / 1e9 - 1e-3)
    assert found.share("rest") == pytest.approx(0, abs=1e-9)


def test_waiting_for_the_pool_is_counted_once_where_it_was_only_seen_from_outside() -> None:
    one = step(python=0.0, kernel=9e6, sleep=6e6)
    assert one.traced is not None
    (op,) = one.traced.ops
    inside = replace(op, own=op.own + 6e6)  # the op's own time holds the wait for its threads
    around = one.traced.places[report.PYTHON]
    traced = replace(
        one.traced,
        ops=(inside,),
        places={report.PYTHON: replace(around, own=around.own - 6e6)},
    )
    share = 6e6 / one.plain.wall
    seen = Watched(1000, {"pool": round(1000 * share)})
    shared = passes(*[replace(one, traced=traced)] * 3, watched=seen)
    found = make_ledger(ARM, replace(shared, facts={**shared.facts, "threads": "4"}))
    assert found.share("pool") == pytest.approx(share, abs=0.01)
    assert found.share("kernels") * found.wall_s == pytest.approx(9e-3, rel=0.02)
    assert abs(found.share("rest")) < 0.01


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


def test_parts_never_exceed_their_line() -> None:
    """Half of the kernel's time maps pages: the parts of what is left are cut as well."""
    one = step(kernel=3e6, faults=3000)
    found = make_ledger(ARM, passes(one, one, one))
    assert found.share("allocator") * found.wall_s == pytest.approx(1.5e-3)
    assert found.ops[0].kernel_s == pytest.approx(3e-3)
    for line in found.lines:
        if line.name in ("kernels", "dispatch", "MKL"):
            assert sum(part.seconds for part in line.parts) == pytest.approx(line.seconds)
    assert {"kernels", "dispatch", "MKL"} <= {line.name for line in found.lines}


def test_ops_that_make_room_are_no_part_of_the_kernels() -> None:
    one = step()
    assert one.traced is not None
    room = OpTime("aten::empty", CALLS, 2 * CALLS * (FLOOR + EVENT / 2), 0.0)
    traced = replace(one.traced, ops=(*one.traced.ops, room))
    found = make_ledger(ARM, passes(*[replace(one, traced=traced)] * 3))
    for name in ("kernels", "dispatch"):
        line = found.line(name)
        assert line is not None
        assert [part.name for part in line.parts] == ["aten::mm"]


CONVOLUTION = OpWork("aten.convolution", 2, 60_000_000_000, 4 << 20, 900_000)


@pytest.mark.parametrize(
    ("kernel", "counted", "ceiling"),
    [
        ("aten::mkldnn_convolution", CONVOLUTION, "compute"),
        ("aten::thnn_conv2d", CONVOLUTION, "compute"),
        ("aten::clamp_min", OpWork("aten.relu", 1, None, 64 << 20, 1), "memory"),
        ("aten::tanh", CONVOLUTION, "unknown"),
    ],
)
def test_work_is_counted_under_another_name_than_it_is_done(
    kernel: str, counted: OpWork, ceiling: str
) -> None:
    one = step()
    assert one.traced is not None
    ops = tuple(replace(op, name=kernel) for op in one.traced.ops)
    seen = passes(
        *[replace(one, traced=replace(one.traced, ops=ops))] * 3,
        flops=replace(flops(1, 1, 1), heaviest=(counted,)),
        contract=Contract(inputs=(), outputs=(), parameter_dtypes={"float32": 10}),
    )
    found = make_ledger(ARM, seen, calibration())
    assert [line.name for line in found.level(5)] == [ceiling]


def test_several_works_of_one_kernel_are_added_up() -> None:
    done = _works((OpWork("aten.clone", 1, None, 10, 1), OpWork("aten._to_copy", 2, None, 30, 1)))
    assert (done["aten::copy_"].calls, done["aten::copy_"].bytes) == (3, 40)
    own = _works((OpWork("aten.mean", 1, None, 10, 1), OpWork("aten.sum", 2, None, 30, 1)))
    assert own["aten::sum"].bytes == 30


def test_copies_to_a_device_stand_beside_the_lines() -> None:
    """A stand-in for a device that is not here: two copies of a millisecond in every step."""
    one = step()
    assert one.traced is not None
    copies = (OpTime("Memcpy HtoD (Pageable -> Device)", 2.0, 2e6, 0.0),)
    arm = replace(ARM, device="cuda")
    found = make_ledger(arm, passes(*[replace(one, traced=replace(one.traced, copies=copies))] * 3))
    assert found.lines == make_ledger(arm, passes(one, one, one)).lines
    told = device_copies.look(found)
    assert told is not None
    assert "2 times" in told.evidence


def test_sleep_that_nobody_saw_stays_unexplained() -> None:
    found = make_ledger(ARM, passes(*[step(sleep=4e6)] * 3))
    assert found.share("rest") * found.wall_s == pytest.approx(4e-3)
    assert any("is not explained" in text for text in found.checks)


def test_a_lock_without_a_call_is_seen_from_outside() -> None:
    one = step(sleep=4e6)
    share = 4e6 / one.plain.wall
    seen = Watched(1000, {"locks": round(1000 * share)})
    found = make_ledger(ARM, passes(one, one, one, watched=seen))
    assert found.share("locks") == pytest.approx(share, abs=0.002)
    assert abs(found.share("rest")) < 0.002


def test_the_interpreters_lock() -> None:
    one = step(sleep=4e6)
    one = replace(one, plain=replace(one.plain, python_threads=4e6))
    share = 4e6 / one.plain.wall
    seen = Watched(1000, {"gil": round(1000 * share)})
    found = make_ledger(ARM, passes(one, one, one, watched=seen))
    assert found.share("gil") == pytest.approx(share, abs=0.002)
    assert "has a lock, and the step waited for it" in found.interpreter
    guessed = make_ledger(ARM, passes(one, one, one, watched=Watched(reason="no /proc")))
    assert guessed.share("gil") == pytest.approx(share, abs=0.002)
    assert "inferred, because nobody could look: no /proc" in guessed.interpreter


def test_what_was_inferred_is_not_said_to_have_been_seen() -> None:
    one = step(sleep=4e6)
    one = replace(one, plain=replace(one.plain, python_threads=4e6))
    few = Watched(1000, {"gil": 2, "locks": 8})
    found = make_ledger(ARM, passes(one, one, one, watched=few))
    assert found.share("gil") > 0.3
    assert "inferred: too few of 1000 looks" in found.interpreter
    assert "seen in" not in found.interpreter


def test_the_other_threads_wait_for_the_lock_too() -> None:
    seen = Watched(looks=1000, others=4, others_looks=4000, others_gil=3000)
    found = make_ledger(ARM, passes(watched=seen))
    assert "Its other Python threads (4) waited for the lock in 75%" in found.interpreter


def test_time_in_network_calls_is_not_called_files() -> None:
    blocks = (
        Block("network", "socket.send", "x.py:1", 0.0, 3e5, 1.0),
        Block("files", "io.read", "x.py:2", 0.0, 1e5, 1.0),
    )
    found = make_ledger(ARM, passes(blocks=blocks))
    assert found.share("network") * found.wall_s == pytest.approx(3e-4)
    assert found.share("files") * found.wall_s == pytest.approx(1e-4)
    assert found.share("interpreter") * found.wall_s == pytest.approx(2e-3 - 4e-4)


def test_many_small_waits_are_added_up_before_they_are_cut() -> None:
    many = [Block("files", f"f{i}", "x.py:1", 1e3, 2e3, 1.0) for i in range(30)]
    kept = cut([*many, Block("sleep", "s", "x.py:1", 1.0, 0.0, 1.0)], most=5)
    assert len(kept) == 7
    files = [one for one in kept if one.kind == "files"]
    assert sum(one.off for one in files) == pytest.approx(30e3)
    assert sum(one.on for one in files) == pytest.approx(60e3)
    assert sum(one.calls for one in files) == 30
    assert [one.function for one in kept if one.kind == "sleep"] == [ELSEWHERE]


def test_the_clock_is_said_where_it_is_known() -> None:
    known = passes()
    facts = {**known.facts, "clock_hz": "3050000000"}
    found = make_ledger(ARM, replace(known, facts=facts))
    assert any("3.05 GHz" in words for words in found.hardware)
    ceilings = calibration(clock=Peak(3.3e9))
    beside = make_ledger(ARM, replace(known, facts=facts), ceilings)
    assert any("3.05 GHz, 3.30 GHz when" in words for words in beside.hardware)
    assert not any("clock" in words for words in make_ledger(ARM, known).hardware)


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
    assert any("had to be scaled by 0.93" in text for text in found.checks)
    assert float(found.facts["drift"]) == pytest.approx(1 / 1.08, abs=0.01)
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
        for kind in ("sleep", "locks", "files", "network", "loading", "torch", "other")
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
