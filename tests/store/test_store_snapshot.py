"""Several questions answered from one state, while another program writes between them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store_history import night_run, store_night
from store_runs import fill, make_run

from torchstone.records import Outcome, Selection, UsageError
from torchstone.store import Store, open_store


def asked(store: Store) -> list[object]:
    heads = store.run_heads()
    figures: list[object] = [store.cases(head.id) for head in heads]
    return [heads, store.choices(), store.group_points(Selection()), *figures]


@pytest.fixture
def reader(db: Path) -> Store:
    with open_store(str(db)) as store:
        store_night(store, night_run(0), {1: Outcome.CRASH})
    return open_store(str(db), create=False, read_only=True)


def test_what_is_written_meanwhile_is_seen_after_the_block(db: Path, reader: Store) -> None:
    with reader, open_store(str(db)) as writer:
        with reader.snapshot():
            before = asked(reader)
            store_night(writer, night_run(1))  # the writer does not wait either
            assert len(writer.run_heads()) == 2
            assert asked(reader) == before
        assert len(reader.run_heads()) == 2


def test_the_state_is_that_of_the_beginning_not_of_the_first_question(
    db: Path, reader: Store
) -> None:
    with reader, open_store(str(db)) as writer, reader.snapshot():
        store_night(writer, night_run(1))
        assert len(reader.run_heads()) == 1


def test_blocks_are_nested_and_the_outermost_counts(db: Path, reader: Store) -> None:
    with reader, open_store(str(db)) as writer:
        with reader.snapshot():
            with reader.snapshot():
                assert len(reader.run_heads()) == 1
            store_night(writer, night_run(1))
            with reader.snapshot():
                assert len(reader.run_heads()) == 1
            assert len(reader.run_heads()) == 1
        with reader.snapshot():
            assert len(reader.run_heads()) == 2


def test_an_error_ends_the_block(db: Path, reader: Store) -> None:
    with reader, open_store(str(db)) as writer:
        with pytest.raises(UsageError), reader.snapshot():
            reader.run_head("nope")
        store_night(writer, night_run(1))
        assert len(reader.run_heads()) == 2


def test_a_block_is_its_threads_own(db: Path, reader: Store) -> None:
    with (
        reader,
        open_store(str(db)) as writer,
        ThreadPoolExecutor(1) as other,
        reader.snapshot(),
    ):
        store_night(writer, night_run(1))
        assert len(other.submit(reader.run_heads).result()) == 2
        assert len(reader.run_heads()) == 1


def test_nobody_writes_in_a_block_of_their_own(db: Path, reader: Store) -> None:
    reader.close()
    with open_store(str(db)) as store:
        with store.snapshot(), pytest.raises(RuntimeError, match="snapshot"):
            store_night(store, night_run(1))
        store_night(store, night_run(1))
        assert len(store.run_heads()) == 2


def test_a_run_is_read_without_its_plan(db: Path, reader: Store) -> None:
    reader.close()
    run = make_run("whole", cases=6)
    with open_store(str(db)) as store:
        fill(store, run, [0])
        found = store.load_run("whole", plan=False)
        assert found.plan == ()
        assert (found.method, found.version, found.command) == (
            run.method,
            run.version,
            run.command,
        )
        assert store.load_run("whole") == run
