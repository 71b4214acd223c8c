"""The store: all its parts on one database."""

from __future__ import annotations

from types import TracebackType

from torchstone.store.engine import open_engine
from torchstone.store.history_part import HistoryPart
from torchstone.store.ledgers_part import LedgersPart
from torchstone.store.location import locate
from torchstone.store.machines_part import MachinesPart
from torchstone.store.profiles_part import ProfilesPart
from torchstone.store.results_part import ResultsPart
from torchstone.store.runs_part import RunsPart
from torchstone.store.upkeep_part import UpkeepPart


class Store(
    ResultsPart, RunsPart, HistoryPart, MachinesPart, ProfilesPart, LedgersPart, UpkeepPart
):
    """Results and runs on disk, append-only. Made by `open_store`; a context manager."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_sqlite(url: str | None, *, create: bool, read_only: bool) -> Store:
    """The store at `url`; see `torchstone.store.open_store`."""
    location = locate(url)
    engine = open_engine(location, create=create, read_only=read_only)
    return Store(engine, location.path, read_only=read_only)
