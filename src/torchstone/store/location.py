"""Where the database is: from a URL, a path, the environment, or the user's data directory."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from torchstone.records import UsageError
from torchstone.records.errors import data_directory

VARIABLE = "TORCHSTONE_DB"
FILE_NAME = "torchstone.db"

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_SQLITE = ("sqlite", "sqlite+pysqlite")
_SERVERS = ("postgresql", "postgresql+psycopg", "postgres")
_KINDS = "Give a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME."
# Up to the last "@", because a password may hold anything, and rather too much than too little.
_PASSWORD = re.compile(r"(://[^:/@]*:).*(?=@)|([?&](?:ssl)?password=)[^&]*", re.I | re.S)


def redact(url: str) -> str:
    """The address of a database without its password."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", url)


@dataclass(frozen=True)
class Location:
    """A SQLite file, or a PostgreSQL database. `own` is true in the data directory, which may be
    made when it is missing. As text it has no password, so that every message may name it."""

    path: Path = Path()
    own: bool = False
    url: str = field(default="", repr=False)
    """Of a server, with its password."""

    def __str__(self) -> str:
        return redact(self.url) if self.url else str(self.path)

    @property
    def name(self) -> str:
        """The file's name or the database's, without where it is: pages may be seen by others."""
        if not self.url:
            return self.path.name
        return unquote(urlsplit(self.url).path.strip("/")) or "postgresql"

    @property
    def is_empty_file(self) -> bool:
        """Whether nothing was ever stored there: no file, or an empty one."""
        path = self.path
        return not self.url and (not path.exists() or (path.is_file() and not path.stat().st_size))


def locate(url: str | None) -> Location:
    """The place that `url` names; without it, the environment's or the user's own database."""
    if url is None:
        url = os.environ.get(VARIABLE) or None
    if url is None:
        return Location(data_directory() / FILE_NAME, own=True)
    scheme = _SCHEME.match(url)
    if scheme and scheme.group(1).lower() in _SERVERS:
        return Location(url=f"postgresql+psycopg://{url[scheme.end() :]}")
    return Location(_path_of(url))


def _path_of(url: str) -> Path:
    text = url
    scheme = _SCHEME.match(url)
    if scheme:
        kind = scheme.group(1).lower()
        if kind not in _SQLITE:
            # The rest of the URL is not repeated: it may hold a password.
            raise UsageError(f"Databases of the kind {kind!r} are not known.", _KINDS)
        host, slash, text = url[scheme.end() :].partition("/")
        if host or (slash and "?" in text):
            raise UsageError(
                "A SQLite URL holds a path and nothing else.",
                "Write sqlite:///relative.db or sqlite:////absolute.db.",
            )
    if not text or text == ":memory:":
        raise UsageError(
            "The database needs a file, so that results outlive the program.",
            "Give a path, or use --no-save to keep nothing.",
        )
    if "\0" in text:
        raise UsageError("A path cannot contain a null character.", "Give another path.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"No home directory is known for {text!r}.", "Give a full path.") from None


def check_file(location: Location, *, create: bool, read_only: bool) -> bool:
    """Whether the file exists. Raises `UsageError` if it cannot serve; writes nothing."""
    path = location.path
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        _check_absent(location, create=create)
        return False
    except OSError as error:
        raise cannot_open(path, error.strerror or str(error)) from None
    if stat.S_ISDIR(mode):
        raise UsageError(
            f"{path} is a directory, not a database.", f"Give a file, such as {path / FILE_NAME}."
        )
    if not stat.S_ISREG(mode):  # opening a pipe would wait forever
        raise UsageError(f"{path} is not a regular file.", "Give the path of a database file.")
    if not os.access(path, os.R_OK):
        raise cannot_open(path, "it may not be read")
    if not read_only and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise UsageError(
            f"The database {path} or its directory is not writable.",
            "Give another database with --db, or do not save (--no-save).",
        )
    return True


def _check_absent(location: Location, *, create: bool) -> None:
    path = location.path
    if not create:
        raise UsageError(
            f"There is no database at {path}.",
            "Run `torchstone bench` to make the first result, or name another with --db.",
        )
    parent = path.parent
    if location.own:  # the missing part of the data directory is made when the store is
        while not os.path.exists(parent) and parent != parent.parent:
            parent = parent.parent
    if not os.path.isdir(parent):
        raise UsageError(
            f"The directory {parent} for the database does not exist.",
            "Make it, or name another database with --db.",
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"No database can be made in {parent}: the directory is not writable.",
            "Give another database with --db, or do not save (--no-save).",
        )


def cannot_open(path: Path | Location, reason: str) -> UsageError:
    """The error for a database that is there but cannot be opened."""
    return UsageError(
        f"The database {path} cannot be opened: {reason}.",
        "Check the path and its permissions, or name another database with --db.",
    )
