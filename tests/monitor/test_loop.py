"""A real training loop under a monitor: what is split, what is noticed, what is left behind."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchstone
from torchstone.monitor.clock import StepRow
from torchstone.monitor.journal import open_record
from torchstone.monitor.session import Monitor
from torchstone.monitor.views import view_of
from torchstone.records import UsageError
from torchstone.records.monitoring import MonitorLevel

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def step(model: nn.Module, optimizer: Any, batch: Any) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def batches(count: int) -> list[Any]:
    return [torch.ones(4, 8) for _ in range(count)]


def rows_of(monitor: Monitor) -> list[StepRow]:
    """Keep the rows from the monitor's thread."""
    kept: list[StepRow] = []
    add = monitor._collector.add

    def adding(rows: Any, *args: Any, **options: Any) -> None:
        kept.extend(StepRow._make(row) for row in rows)
        add(rows, *args, **options)

    monitor._collector.add = adding  # type: ignore[method-assign]
    return kept


def found(monitor: Monitor, what: str) -> Any:
    (one,) = [event for event in monitor.events if event.what == what]
    return one


def test_the_phases_add_up_to_the_wall(tmp_path: Path) -> None:
    model, optimizer = make()
    with torchstone.monitor("sum", model=model, optimizer=optimizer, folder=tmp_path) as m:
        rows = rows_of(m)
        for batch in m.steps(batches(50)):
            step(model, optimizer, batch)
    assert [row.step for row in rows] == list(range(50))
    for before, row in itertools.pairwise(rows):
        parts = row.data + row.forward + row.backward + row.optimizer + row.other
        assert row.end - before.end == parts + row.gap
        assert min(row.data, row.forward, row.backward, row.optimizer, row.other) > 0
    chunks = open_record(tmp_path).ranks[0].chunks
    assert sum(one.steps for one in chunks) == 50
    for sums in (one.kinds["train"] for one in chunks):
        known = [value for value in sums.phases_ns.values() if value is not None]
        assert abs(sum(known) - sums.wall_ns) <= len(known)
        assert sums.phases_ns["transfer"] is None
        assert sums.phases_ns["collective"] is None


def test_nothing_of_ours_stays_in_torch(tmp_path: Path) -> None:
    from torch.optim import optimizer as optim
    from torch.utils.data import dataloader

    def state() -> tuple[Any, ...]:
        loader = dataloader._BaseDataLoaderIter.__next__
        hooks = dict(optim._global_optimizer_pre_hooks), dict(optim._global_optimizer_post_hooks)
        return torch.autograd.backward, torch.save, loader, hooks, list(gc.callbacks)

    before = state()
    model, optimizer = make()
    with torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m:
        assert state() != before
        for batch in m.steps(batches(2)):
            step(model, optimizer, batch)
    assert state() == before


def test_accumulation_two_optimizers_and_evaluation_fall_out_of_the_marks(tmp_path: Path) -> None:
    model, optimizer = make()
    other = torch.optim.SGD(model.parameters(), lr=1e-3)
    with torchstone.monitor(folder=tmp_path, model=model) as m:
        rows = rows_of(m)
        for number, batch in enumerate(m.steps(batches(8))):
            model(batch).square().mean().backward()
            if number % 4 == 3:
                optimizer.step()
                model(batch).square().mean().backward()
                other.step()
        with torch.no_grad():
            for batch in m.steps(batches(3)):
                model(batch)
    assert [(row.backwards, row.optimizers) for row in rows[:4]] == [(1, 0)] * 3 + [(2, 2)]
    assert [row.backwards for row in rows[8:]] == [0, 0, 0]
    kinds = open_record(tmp_path).ranks[0].chunks[-1].kinds
    assert {name: one.steps for name, one in kinds.items()} == {
        "train": 2,
        "accumulate": 6,
        "forward": 3,
    }


def test_a_checkpointed_part_is_part_of_backward(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    model, optimizer = make()
    with torchstone.monitor(folder=tmp_path) as m:
        rows = rows_of(m)
        for batch in m.steps(batches(3)):
            wanted = batch.clone().requires_grad_()
            checkpoint(model, wanted, use_reentrant=True).square().mean().backward()
            optimizer.step()
    assert [row.backwards for row in rows] == [1, 1, 1]


def test_nan_at_step_137_is_named(tmp_path: Path) -> None:
    model, optimizer = make()
    data = batches(200)
    data[137] = torch.full((4, 8), math.nan)
    with torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m:
        for batch in m.steps(data):
            step(model, optimizer, batch)
    event = found(m, "loss")
    assert (event.step, event.level) == (137, MonitorLevel.WARN)
    assert "NaN" in event.text


def test_a_dtype_that_changes_at_step_50_is_named(tmp_path: Path) -> None:
    model, optimizer = make()
    data = batches(100)
    data[50:] = [one.double() for one in data[50:]]
    with torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m:
        for batch in m.steps(data):
            step(model, optimizer, batch.float())
    event = found(m, "dtype")
    assert (event.step, event.level) == (50, MonitorLevel.WARN)
    assert "float32 to float64" in event.text


def test_a_model_in_eval_mode_is_named(tmp_path: Path) -> None:
    model, optimizer = make()
    with torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m:
        for number, batch in enumerate(m.steps(batches(40))):
            if number == 30:
                model.eval()
            step(model, optimizer, batch)
    event = found(m, "eval-mode")
    assert (event.step, event.level) == (30, MonitorLevel.WARN)


def test_the_last_batch_of_an_epoch_is_a_note_and_said_once(tmp_path: Path) -> None:
    model, optimizer = make()
    with torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m:
        for _ in range(5):
            for batch in m.steps([*batches(10), torch.ones(3, 8)]):
                step(model, optimizer, batch)
    event = found(m, "batch-size")
    assert (event.step, event.level) == (10, MonitorLevel.NOTE)


def test_many_shapes_are_said_in_one_sentence(tmp_path: Path) -> None:
    model, optimizer = make()
    with torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m:
        for number in m.steps(torch.ones(4, 4 + n, 8) for n in range(60)):
            step(model, optimizer, number)
    assert len(m.events) <= 9
    assert found(m, "shapes").level is MonitorLevel.NOTE


def test_resuming_is_an_event(tmp_path: Path) -> None:
    model, _ = make()
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer, torch.ones(4, 8))
    state = optimizer.state_dict()
    with torchstone.monitor(folder=tmp_path, optimizer=optimizer, step=100) as m:
        for number, batch in enumerate(m.steps(batches(4))):
            if number == 2:
                optimizer.load_state_dict(state)
            step(model, optimizer, batch)
    first, second = [event for event in m.events if event.what == "resume"]
    assert (first.step, second.step) == (100, 102)
    assert "1 steps" in first.text
    assert open_record(tmp_path).ranks[0].chunks[0].first_step == 100


def test_steps_the_scaler_skipped_are_an_event(tmp_path: Path) -> None:
    model, optimizer = make()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    data = batches(12)
    data[7] = torch.full((4, 8), 1e30)
    with torchstone.monitor(folder=tmp_path, model=model, scaler=scaler) as m:
        for batch in m.steps(data):
            optimizer.zero_grad()
            scaler.scale(model(batch).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert found(m, "scaler").step == 7


def test_an_error_in_the_loop_is_in_the_record(tmp_path: Path) -> None:
    model, optimizer = make()

    def train() -> None:
        with torchstone.monitor("bad", folder=tmp_path, model=model) as m:
            for number, batch in enumerate(m.steps(batches(10))):
                step(model, optimizer, batch)
                if number == 5:
                    raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        train()
    view = view_of(open_record(tmp_path))
    assert (view.state, view.reason) == ("failed", "RuntimeError: boom")
    assert view.ranks[0].whole.steps == 6


def test_no_new_graphs_under_compile(tmp_path: Path) -> None:
    """Neither the monitor's coming nor its going makes anything be compiled again."""
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    def train(monitored: bool) -> int:
        torch._dynamo.reset()
        counter = CompileCounter()
        model, optimizer = make()
        compiled = torch.compile(model, backend=counter)
        update = torch.compile(optimizer.step, backend=counter)

        def one(batch: Any) -> None:
            optimizer.zero_grad()
            compiled(batch).square().mean().backward()
            update()

        if monitored:
            with torchstone.monitor(folder=tmp_path, model=compiled) as m:
                for batch in m.steps(batches(6)):
                    one(batch)
        else:
            for batch in batches(6):
                one(batch)
        return int(counter.frame_count)

    assert train(True) == train(False)


def test_a_monitor_that_is_not_open_says_so(tmp_path: Path) -> None:
    m = torchstone.monitor(folder=tmp_path)
    with pytest.raises(UsageError, match="not open"):
        next(iter(m.steps([1])))
    with m, pytest.raises(UsageError, match="open already"):
        m.__enter__()


def test_an_unknown_sink_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no sink 'promethius'.*Did you mean prometheus"):
        torchstone.monitor(folder=tmp_path, sinks=["promethius:1"]).__enter__()


def test_what_is_compiled_again_is_named_with_its_step_and_the_limit(tmp_path: Path) -> None:
    import torch._dynamo

    torch._dynamo.reset()
    model, optimizer = make()
    loss = torch.compile(lambda x: model(x).square().mean(), backend="eager", dynamic=False)
    with (
        torch._dynamo.config.patch(recompile_limit=2),
        torchstone.monitor(folder=tmp_path, model=model, optimizer=optimizer) as m,
    ):
        for rows in m.steps([4, 4, 4, 5, 5, 6, 6]):
            loss(torch.ones(rows, 8)).backward()
            optimizer.step()
    again, limit = found(m, "recompile"), found(m, "recompile-limit")
    assert (again.step, again.level) == (3, MonitorLevel.NOTE)
    assert "size mismatch" in again.text
    assert (limit.step, limit.level) == (5, MonitorLevel.WARN)
    assert "<lambda>" in limit.text


def test_a_loss_can_be_given(tmp_path: Path) -> None:
    with torchstone.monitor(folder=tmp_path) as m:
        for number in m.steps(range(5)):
            m.loss(math.inf if number == 3 else 0.5)
    assert found(m, "loss").step == 3
    assert open_record(tmp_path).ranks[0].chunks[-1].loss == 0.5


def test_memory_is_flat_however_many_batches_differ(tmp_path: Path) -> None:
    """What the hot path keeps is bounded: signatures, rows that wait, and nothing a step."""
    from torchstone.monitor import clock

    watched = clock.StepClock(torch.Tensor)
    for rows in range(clock.MOST_SIGNATURES + 500):
        watched.fetch_begins()
        watched.fetch_ends(torch.empty(rows, 0))
    assert len(watched.signatures) == clock.MOST_SIGNATURES
    assert watched.rows[-1][clock.StepRow._fields.index("signature")] == clock.MANY
    assert watched.rows.maxlen == clock.MOST_WAITING
    watched.end()
