"""`torchstone push` and `torchstone token`: runs to a server that accepts them, and who may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.store.tokens import TokenInfo

_LIVES = {"h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def _parse_life(text: str) -> float:
    match = re.fullmatch(r"\s*(\d{1,6})\s*([hdw])\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write 12h, 30d or 8w")
    return float(match[1]) * _LIVES[match[2]]


@click.command()
@click.argument("run", metavar="RUN")
@opt.option("--to", required=True, metavar="URL", help="Of a `torchstone serve --accept-pushes`.")
@opt.option(
    "--token-file",
    metavar="FILE",
    default=None,
    help="Holds the token; - reads standard input (default: the variable TORCHSTONE_TOKEN).",
)
@opt.option(
    "--retry-for",
    type=opt.DURATION,
    default="2m",
    help="How long to try while the server is away or busy.",
)
@opt.option("--allow-http", is_flag=True, help="Send the token without TLS to another machine.")
@opt.database_option
@opt.json_flag
def push(
    run: str,
    to: str,
    token_file: str | None,
    retry_for: float,
    allow_http: bool,
    db: str | None,
    output: opt.Output,
) -> None:
    """Send a run, with its cases, results and samples, to a shared server.

    It arrives whole or not at all; pushing it again changes nothing. Shards of one run join there.
    Profiles and ledgers stay here.

    \b
    Examples:
      torchstone push last --to https://bench.example --token-file ~/.torchstone-token
      TORCHSTONE_TOKEN=... torchstone push nightly-0412 --to https://bench.example
    """
    from torchstone.lab.push import check_address, push_run, read_token
    from torchstone.records import to_data
    from torchstone.records.format import count, format_bytes

    to, token = check_address(to, allow_http), read_token(token_file)
    done = push_run(run, to, token, db, retry_for, lambda line: click.echo(line, err=True))
    what = f"{count(done.added, 'case')} added, {done.known} known, {done.planned} planned"
    line = f"{done.run}: {what} ({format_bytes(done.bytes)})"
    if not done.added:
        line = f"{done.run}: already there ({count(done.known, 'case')} of {done.planned})"
    opt.deliver_lines(output, [line], lambda: {"schema": 1, **to_data(done)})


@click.group()
def token() -> None:
    """Tokens for `torchstone push`: kept in the database of the server, as hashes only.

    \b
    Examples:
      torchstone token create --scope push --expires 30d --name nightly > token
      torchstone token list
      torchstone token revoke 1f0c9a3e
    """


@token.command("create")
@opt.option("--scope", type=click.Choice(["push"]), required=True, help="What it allows.")
@opt.option(
    "--expires",
    type=opt.Parsed("time", _parse_life),
    default="30d",
    metavar="TIME",
    help="Such as 12h, 30d or 8w; at most a year.",
)
@opt.option("--name", default="", help="Whose it is: what it pushes is marked with it.")
@opt.option("--once", is_flag=True, help="Good for one push, and for repeating that one.")
@opt.database_option
@opt.json_flag
def token_create(
    scope: str, expires: float, name: str, once: bool, db: str | None, output: opt.Output
) -> None:
    """Make a token and print it, this once: only a hash of it is stored.

    \b
    Examples:
      torchstone token create --scope push --expires 30d --name nightly > token
      torchstone token create --scope push --expires 1h --once
    """
    from torchstone.store import open_store

    with open_store(db) as store:
        made, text = store.create_token(name, scope, expires, once=once)
    click.echo(f"token {_line(made)}; it is not shown again", err=True)
    opt.deliver_lines(output, [text], lambda: {"schema": 1, "token": text, **_data(made)})


@token.command("list")
@opt.database_option
@opt.json_flag
def token_list(db: str | None, output: opt.Output) -> None:
    """List tokens: id, name, scope, state, and how many pushes they made.

    \b
    Examples:
      torchstone token list
      torchstone token list --json
    """
    from torchstone.store import open_store

    with open_store(db, create=False, read_only=True) as store:
        found = store.tokens()
    lines = [_line(one) for one in found] or ["no tokens"]
    opt.deliver_lines(output, lines, lambda: {"schema": 1, "tokens": [_data(one) for one in found]})


@token.command("revoke")
@click.argument("ident", metavar="ID")
@opt.database_option
@opt.json_flag
def token_revoke(ident: str, db: str | None, output: opt.Output) -> None:
    """Refuse a token from now on. Runs that it pushed stay.

    \b
    Examples:
      torchstone token revoke 1f0c9a3e
    """
    from torchstone.store import open_store

    with open_store(db, create=False) as store:
        done = store.revoke_token(ident)
    opt.deliver_lines(output, [_line(done)], lambda: {"schema": 1, **_data(done)})


def _expires(one: TokenInfo) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(one.expires_s, timezone.utc).isoformat(timespec="minutes")


def _line(one: TokenInfo) -> str:
    from torchstone.records.format import count

    name = f" {one.name!r}" if one.name else ""
    once = ", once" if one.once else ""
    pushes = count(one.pushes, "push", "pushes")
    return f"{one.id}{name}: {one.scope}{once}, {one.state}, expires {_expires(one)}, {pushes}"


def _data(one: TokenInfo) -> dict[str, object]:
    names = ("id", "name", "scope", "created", "once", "revoked", "pushes", "state")
    return {**{name: getattr(one, name) for name in names}, "expires": _expires(one)}
