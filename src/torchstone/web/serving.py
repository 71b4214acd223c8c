"""`torchstone serve`: opens the database for reading, listens, and says where."""

from __future__ import annotations

import gc
import os
import resource
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from types import FrameType

import uvicorn

from torchstone.records import UsageError
from torchstone.store import check_store, open_store
from torchstone.store.location import locate
from torchstone.web.app import AppState, make_app
from torchstone.web.connections import protocol
from torchstone.web.security import LOOPBACK, Hosts, host_name, ip_address

MOST_CONNECTIONS = 3500
"""Held at once; a further one is told to come back. Those that wait for a request are closed long
before (`MOST_WAITING`), unless thousands come within seconds."""
DESCRIPTORS = 4096
"""Open files that we ask for: a connection is one, and many systems give 1024."""
WAITING = 2048
"""Connections that may wait to be taken, as many as uvicorn's own default."""
SELDOM = (20_000, 50, 50)
"""When Python looks for garbage. A page makes tens of thousands of objects that die with it, and a
look through whole runs that are kept takes as long as the page."""
INTERRUPTED = 130
"""The exit code of a second Ctrl-C, as shells have it."""
FIRST_READER_S = 0.5
"""Left to whoever asks for the overview as soon as it can be asked for."""
PATIENCE_S = 5
"""For answers under way when the server is told to end."""
EMPTY = "There was no such database: an empty one was made. Runs show up as they come."
PUSHES_TAKEN = "Pushes are accepted from whoever has a token (`torchstone token create`)."
EXPOSED = (
    "Everybody who can reach {address} can read all that is in the database: every result with its "
    "samples, commands, model and file names, commits, machine descriptions and profiles."
)


def serve(
    say: Callable[[str], None],
    db: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8484,
    public: bool = False,
    names: Sequence[str] = (),
    repository: str = "",
    open_browser: bool = False,
    accept_pushes: bool = False,
) -> int:
    """Serve until Ctrl-C; `say` gets each line for the terminal. `names` are host names that it
    answers to beside its own."""
    _check_host(host, port, public)
    _raise_limit()
    new = is_new(db)
    if new:
        with open_store(db):  # an empty one, in which the first run will be found
            pass
    with ExitStack() as stack:
        # The one for writing first: it brings a database of an older program up to date.
        writer = stack.enter_context(open_store(db, create=False)) if accept_pushes else None
        store = stack.enter_context(open_store(db, create=False, read_only=True))
        store.run_heads(limit=1)  # a database of an older program has no history: said now
        own = [] if host in ("0.0.0.0", "::") else [host]
        own += [socket.gethostname()] if public else []
        hosts = Hosts.of([host_name(name) or name for name in (*own, *names)], public)
        with closing(_bound(host, port)) as bound, suppress(KeyboardInterrupt):
            shown = f"[{host}]" if ":" in host else host
            address = f"http://{shown}:{bound.getsockname()[1]}/"
            app_state = AppState(store, repository)
            app = make_app(store, hosts, app_state, writer)
            app_state.first()

            def listens() -> None:
                say(f"The dashboard of {store.location} is at {address} (Ctrl-C ends it).")
                if new:
                    say(EMPTY)
                if accept_pushes:
                    say(PUSHES_TAKEN)
                if not is_loopback(host):
                    say(EXPOSED.format(address=address))
                if open_browser:
                    threading.Timer(0.0, webbrowser.open, (address,)).start()  # it may wait

            with _warming(app_state):  # an interrupt is the way it is meant to end
                _Server(_config(app), app_state, listens).run(sockets=[bound])
    return 0


class _Server(uvicorn.Server):
    """Tells the app as soon as it is told to end itself, and calls `listens` when it can be asked
    for the overview, which is there by then."""

    def __init__(
        self, config: uvicorn.Config, app_state: AppState, listens: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._app_state = app_state
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listens()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app_state.warmup_gate.end()
        super().handle_exit(sig, frame)


@contextmanager
def _warming(app_state: AppState) -> Iterator[None]:
    """Beside the server, a thread that makes the first pages. It is waited for: one that an ending
    interpreter finds at work is interrupted there, and where that is a library's C++, the program
    aborts. Whoever interrupts the waiting has the program end at once."""
    done = threading.Event()
    maker = threading.Thread(target=_warm, args=(app_state, done))
    try:
        maker.start()
        yield
    finally:
        app_state.warmup_gate.end()
        try:
            if maker.ident is not None:  # it could be started
                done.wait()  # not `join`, which takes an interrupted wait for the thread's end
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)  # it only reads: there is nothing to lose


def _warm(app_state: AppState, done: threading.Event) -> None:
    """What the first readers would wait for; then none of it is garbage to look through."""
    try:
        app_state.warmup_gate.ended.wait(FIRST_READER_S)
        app_state.warm()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*SELDOM)
    finally:
        done.set()


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        http=protocol(),
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=PATIENCE_S,
        backlog=WAITING,
    )


def is_new(db: str | None) -> bool:
    """Whether nothing was ever stored there: no file, an empty one, or no tables."""
    location = locate(db)
    return not check_store(db) if location.url else location.is_empty_file


def _raise_limit() -> None:
    """More open files, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; of a name, that is not known."""
    number = ip_address(host)
    return host in LOOPBACK or (number is not None and number.is_loopback)


def _check_host(host: str, port: int, public: bool) -> None:
    if not 0 <= port <= 65535:
        raise UsageError(f"There is no port {port}.", "Choose one up to 65535.")
    if not is_loopback(host) and not public:
        raise UsageError(
            f"On {host} others could read everything in the database: results, commands, names, "
            "commits, profiles.",
            "Add --public if that is wanted, or remove --host.",
        )


def _bound(host: str, port: int) -> socket.socket:
    """A place that is ours before the first page is made; the server listens there after it."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"Cannot bind to {host}:{port}: {reason}.",
            "Choose another --port (0 takes a free one) or --host.",
        ) from None
    return bound
