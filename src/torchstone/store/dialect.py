"""What each database system has to be asked in its own words. SQLite today."""

from __future__ import annotations

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError


def table_bytes(connection: Connection) -> dict[str, int] | None:
    """Bytes on disk of each table with its indexes; None where this SQLite does not tell."""
    try:
        rows = connection.exec_driver_sql(
            "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM "
            "(SELECT name, sum(pgsize) AS pgsize FROM dbstat WHERE aggregate = TRUE GROUP BY name)"
            " AS s LEFT JOIN sqlite_master AS m ON m.name = s.name GROUP BY 1"
        )
        return {str(row[0]): int(row[1]) for row in rows}
    except DBAPIError:  # compiled without the table `dbstat`
        return None


def file_bytes(connection: Connection) -> tuple[int, int]:
    """Bytes of the database, and how many of them are free for what comes next."""
    page, pages, free = (
        int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
        for name in ("page_size", "page_count", "freelist_count")
    )
    return page * pages, page * free


def compact(engine: Engine) -> int:
    """Give free space back to the file system; how much. Needs as much again while it works."""
    with engine.connect() as connection:
        before, _ = file_bytes(connection)
        raw = connection.connection.driver_connection
        connection.rollback()  # neither can be done inside a transaction
        if raw is not None:
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        after, _ = file_bytes(connection)
        return before - after
