"""The store's part on ledgers."""

from __future__ import annotations

from torchstone.records import ArmSpec, Ledger
from torchstone.store import ledgers
from torchstone.store.base import Base
from torchstone.store.ledgers import LedgerSummary


class LedgersPart(Base):
    """Ledgers: a row each."""

    def save_ledger(self, ledger: Ledger) -> int:
        """Keep a ledger; the bytes that it takes."""
        self._refuse_reading_only()
        with self._writing() as connection:
            return ledgers.insert(connection, ledger)

    def load_ledger(self, wanted: str) -> Ledger:
        """The ledger of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            return ledgers.load(connection, wanted)

    def ledger_of(self, arm: ArmSpec, machine_id: str) -> Ledger | None:
        """The newest ledger of the same work on the same machine."""
        with self._reading() as connection:
            return ledgers.newest_of(connection, arm, machine_id)

    def list_ledgers(self, limit: int = 20) -> list[LedgerSummary]:
        """The newest first."""
        with self._reading() as connection:
            return ledgers.summaries(connection, limit)
