"""Who may push: tokens by their public half, with the hash of their secret half.

A secret is 256 random bits, so that there is no list of likely ones to try: plain SHA-256 of it
tells as little as a slow hash would, and a slow one is work that anybody could make the server do.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from torchstone.records import UsageError
from torchstone.store.engine import Base
from torchstone.store.limits import MAX_NAME, now
from torchstone.store.schema import pushed, token, token_revoked

PUSH = "push"
"""The scope of a token that may push runs."""
SECRET_BYTES = 32
LONGEST_TOKEN = 200
"""Characters; a real one has 56."""
LONGEST_LIFE_S = 366 * 86_400.0
_TOKEN = re.compile(r"tst_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_NOBODY = "0" * 64


@dataclass(frozen=True)
class TokenInfo:
    """A token without its secret. `seq` is its row."""

    seq: int
    id: str
    name: str
    scope: str
    created: str
    expires_s: float
    once: bool = False
    revoked: str = ""
    """When; empty: it is not."""
    pushes: int = 0

    @property
    def state(self) -> str:
        """`valid`, `expired` or `revoked`."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires_s <= time.time() else "valid"


class TokenRefused(UsageError):
    """A token that may not do this; `known` where it is one of ours."""

    def __init__(self, message: str, remedy: str, *, known: bool = False) -> None:
        super().__init__(message, remedy)
        self.known = known


_ASK = "Ask for a new one: torchstone token create --scope push."


class TokensPart(Base):
    """Making, listing, revoking and checking tokens."""

    def create_token(
        self, name: str, scope: str, life_s: float, *, once: bool = False
    ) -> tuple[TokenInfo, str]:
        """A new token, and its text, which cannot be had again."""
        if len(name) > MAX_NAME or not name.isprintable():
            raise UsageError(
                f"The name {name[:40]!r} is too long or not printable.",
                f"Use at most {MAX_NAME} printable characters.",
            )
        if not 0 < life_s <= LONGEST_LIFE_S:
            raise UsageError(
                "A token must expire, within a year at most.", "Give --expires 30d or the like."
            )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        ident = secrets.token_hex(4)
        row = {
            "id": ident,
            "name": name,
            "scope": scope,
            "digest": _digest(secret),
            "created": now(),
            "expires_s": time.time() + life_s,
            "once": once,
        }
        with self._writing() as connection:
            connection.execute(token.insert().values(**row))
            return _one(connection, ident), f"tst_{ident}_{secret}"

    def tokens(self) -> list[TokenInfo]:
        """All that were ever made, the oldest first."""
        with self._reading() as connection:
            return [_info(row) for row in connection.execute(_query())]

    def revoke_token(self, ident: str) -> TokenInfo:
        """Refuse it from now on; one that is revoked already stays so."""
        with self._writing() as connection:
            found = _one(connection, ident)
            if not found.revoked:
                row = {"token": found.seq, "created": now()}
                connection.execute(token_revoked.insert().values(**row))
            return _one(connection, ident)

    def check_token(self, text: str, scope: str) -> TokenInfo:
        """Whose token this is; `TokenRefused` where it may not do what `scope` names."""
        match = _TOKEN.fullmatch(text) if len(text) <= LONGEST_TOKEN else None
        ident, secret = match.groups() if match else ("", "")
        with self._reading() as connection:
            row = connection.execute(_query().where(token.c.id == ident)).first()
        stored = _NOBODY if row is None else row.digest
        # In constant time, and the same work and words whether the public half is known or not.
        if not hmac.compare_digest(_digest(secret), stored) or row is None:
            raise TokenRefused("This token is not known here.", _ASK)
        return _usable(_info(row), scope)


def still_usable(connection: Connection, seq: int, digest: str) -> None:
    """Refuse, inside the transaction that writes, a token revoked meanwhile or used up by another
    document than this one."""
    found = _info(connection.execute(_query().where(token.c.seq == seq)).one())
    _usable(found, found.scope)
    if found.once:
        query = select(pushed.c.digest).where(pushed.c.token == seq, pushed.c.digest != digest)
        if connection.execute(query.limit(1)).first() is not None:
            raise TokenRefused(
                f"The token {found.id} was good for one push and has been used.", _ASK, known=True
            )


def _usable(found: TokenInfo, scope: str) -> TokenInfo:
    if found.state != "valid":
        raise TokenRefused(f"The token {found.id} is {found.state}.", _ASK, known=True)
    if found.scope != scope:
        raise TokenRefused(
            f"The token {found.id} is for {found.scope!r}, not for {scope!r}.", _ASK, known=True
        )
    return found


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _query() -> Select[Any]:
    count = select(func.count()).where(pushed.c.token == token.c.seq).scalar_subquery()
    names = ("seq", "id", "name", "scope", "created", "expires_s", "once", "digest")
    return (
        select(
            *(token.c[name] for name in names),
            func.coalesce(token_revoked.c.created, "").label("revoked"),
            count.label("pushes"),
        )
        .outerjoin(token_revoked, token_revoked.c.token == token.c.seq)
        .order_by(token.c.seq)
    )


def _info(row: Row[Any]) -> TokenInfo:
    return TokenInfo(**{k: v for k, v in row._mapping.items() if k != "digest"})


def _one(connection: Connection, ident: str) -> TokenInfo:
    row = connection.execute(_query().where(token.c.id == ident)).first()
    if row is None:
        raise UsageError(f"There is no token {ident[:40]!r}.", "See `torchstone token list`.")
    return _info(row)
