"""How quick the dashboard is on years of nightly runs, with a writer beside it.

    python benchmarks/dashboard.py --years 2 --out build/dashboard.json
    python benchmarks/dashboard.py --no-routes --readers 200 --seconds 60
    python benchmarks/dashboard.py --no-routes --growth

Makes a synthetic history (3 suites × 60 models × 8 variants × 2 modes every night, raw samples for
the last 30 nights) unless it is there already; a history that was stopped half-way is gone on with.
Then starts the real server and asks for every page and every route of the API: cold (the first
request to a server that has just been started and is at rest; a server a request) and warm, while
a program stores a case every half second. Pages that the server makes for itself after its start
are also asked for at the moment that it listens. Beside each stands what its bare SQL costs. With
--readers, many read at once, each asking again as soon as it is answered; with --growth, one year
is set against four. --out keeps all figures and aims as JSON. --quick only shows that it works.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import dashboard_report as report
from dashboard_history import Shape
from dashboard_kept import (
    Aims,
    Document,
    Recorder,
    default_path,
    make,
    remove,
    say,
    size_words,
    weigh,
)
from dashboard_load import read
from dashboard_report import Grown, Line, Times
from dashboard_routes import Route, newest_night, pages, routes
from dashboard_server import BenchmarkError, Server, again, serving, writing
from dashboard_sql import Cost, cost

from torchstone.records import UsageError
from torchstone.store import open_store
from torchstone.web.query import API, ServerLinks

NIGHTS_OF_A_YEAR = 365
MADE_BEFORE = ("landing", "landing, all time", "result")
"""Pages that the server makes for itself after its start (`AppState.warm`)."""
QUICK = Shape(nights=21, models=4, variants=3, raw_nights=3)


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    restarts: int
    share: int
    """So many first requests are asked of one server: 1, but where it only must be seen to work."""
    repeats: int
    every_s: float
    readers: int
    seconds: float
    think_s: float


def measure_routes(path: Path, shape: Shape, settings: Settings, document: Document) -> Aims:
    """Every page and route, cold and warm, beside its bare SQL."""
    with writing(path, shape, settings.every_s) as written:
        sql = _bare(path, settings)
        with serving(path) as server:
            with open_store(str(path), create=False, read_only=True) as store:
                known = report.in_order(routes(server, pages(store)))
            warm, sizes = _warm(server, known, settings.repeats)
            memory = server.peak_bytes()
        cold, started, at_once = _cold(path, known, settings)
    lines = [
        Line(
            one.name,
            one.kind,
            one.aim_ms,
            sizes[one.name],
            Times.of(cold[one.name]),
            Times.of(warm[one.name]),
            sql.get(one.place, Cost()),
            Times.of(at_once[one.name]) if one.name in at_once else None,
        )
        for one in known
    ]
    aims = report.route_aims(lines)
    document["routes"] = [line.data() for line in lines]
    document["start"] = {
        "until_it_listens_ms": asdict(Times.of([one * 1e3 for one in started])),
        "asked_for_at_once_ms": {name: asdict(Times.of(ms)) for name, ms in at_once.items()},
        "peak_bytes": memory,
    }
    document["writer"] = report.writer_data(written)
    print(report.routes_table(lines))
    print(
        f"\nmilliseconds; cold: {settings.restarts} starts each, warm: {settings.repeats} requests."
        "\nSQL: the page's statements (their number) asked of SQLite without us; store: the same "
        "answered with records; warm: what a page still asks that remembers the rest.\n"
        "cold/SQL of pages that the server makes for itself is of the request at its start.\n"
        "The file was in the system's cache.\n"
        f"the server listens {median(started):.1f} s after its start; at that moment "
        f"{_at_once_words(at_once)}; at most {memory / 1e6:.0f} MB of memory\n"
        f"{report.writer_words(document['writer'])}\n"
    )
    return aims


def _bare(path: Path, settings: Settings) -> dict[str, Cost]:
    """What each page asks of the database."""
    links = ServerLinks()
    with open_store(str(path), create=False, read_only=True) as store:
        known = {name: links.url(place) for name, place in pages(store).items()}
        run = newest_night(store).id
        known |= {"progress": f"{API}/progress", "progress of run": f"{API}/runs/{run}/progress"}
        return {
            name: cost(store, path, address, settings.repeats) for name, address in known.items()
        }


def _warm(
    server: Server, known: list[Route], repeats: int
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """In rounds, each in another order, so that a slow minute falls on all alike."""
    took: dict[str, list[float]] = {one.name: [] for one in known}
    sizes = {one.name: len(server.must_get(one.address).body) for one in known}
    chance = random.Random(0)
    for number in range(repeats):
        for one in chance.sample(known, len(known)):
            took[one.name].append(server.must_get(again(one.address, number)).ms)
        if number % 10 == 9 or number + 1 == repeats:
            say(f"warm: {number + 1}/{repeats} rounds")
    return took, sizes


def _at_once_words(at_once: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} took {median(ms):.0f} ms" for name, ms in at_once.items())


def _cold(
    path: Path, known: list[Route], settings: Settings
) -> tuple[dict[str, list[float]], list[float], dict[str, list[float]]]:
    """A server a request; also its start, and what is asked for at the moment that it listens."""
    took: dict[str, list[float]] = {one.name: [] for one in known}
    made_before = [one for one in known if one.name in MADE_BEFORE]
    at_once: dict[str, list[float]] = {one.name: [] for one in made_before}
    started = []
    for number in range(settings.restarts):
        for one in made_before:
            with serving(path) as server:
                at_once[one.name].append(server.must_get(one.address).ms)
                started.append(server.start_s)
        for first in range(0, len(known), settings.share):
            with serving(path) as server:
                server.rest()
                for one in known[first : first + settings.share]:
                    took[one.name].append(server.must_get(one.address).ms)
        say(f"cold: {number + 1}/{settings.restarts} starts for each of {len(known)}")
    return took, started, at_once


def measure_readers(path: Path, shape: Shape, settings: Settings, document: Document) -> Aims:
    """Many at once."""
    with writing(path, shape, settings.every_s) as written, serving(path) as server:
        with open_store(str(path), create=False, read_only=True) as store:
            known = routes(server, pages(store))
        say(f"{settings.readers} readers for {settings.seconds:g} s")
        used, began = server.cpu_s(), time.perf_counter()
        seen = read(server, known, settings.readers, settings.seconds, settings.think_s)
        cpu = (server.cpu_s() - used) / (time.perf_counter() - began)
    load = report.load_data(seen, written, settings.readers, settings.think_s, cpu)
    document["load"] = load
    print(f"{report.load_words(load)}\n")
    return report.load_aims(load)


def measure_growth(
    paths: tuple[Path, Path], shapes: tuple[Shape, Shape], repeats: int, document: Document
) -> Aims:
    """A short and a long history by turns, nobody else writing."""
    chance = random.Random(0)
    with serving(paths[0]) as first, serving(paths[1]) as second:
        known = []
        for path, server in zip(paths, (first, second), strict=True):
            with open_store(str(path), create=False, read_only=True) as store:
                known.append({one.name: one for one in routes(server, pages(store))})
        names = [name for name in known[0] if name in known[1]]
        took: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
        for number in range(repeats + 1):
            for name in chance.sample(names, len(names)):
                for side in chance.sample((0, 1), 2):
                    address = again(known[side][name].address, number)
                    answer = (first, second)[side].must_get(address)
                    if number:  # the first round is the warm-up
                        took[name][side].append(answer.ms)
    grown = [
        Grown(one.name, one.kind, *(Times.of(part) for part in took[one.name]))
        for one in report.in_order([known[0][name] for name in names])
    ]
    short, long = (f"{shape.nights} nights" for shape in shapes)
    document["growth"] = [{**asdict(one), "ratio": one.ratio} for one in grown]
    print(f"{report.growth_table(grown, short, long)}\n")
    return report.growth_aims(grown, short, long)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--years", type=float, default=2.0)
    parser.add_argument("--models", type=int, default=Shape.models, help="of each suite, a night")
    parser.add_argument(
        "--out", type=Path, default=Path("build/dashboard.json"), help="all figures and aims"
    )
    parser.add_argument("--db", type=Path, help="make the history here, or use the one that is")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep a history made without --db; with --no-routes, only make it",
    )
    parser.add_argument("--quick", action="store_true", help="three weeks of a few models")
    parser.add_argument("--no-routes", action="store_true", help="leave the single requests out")
    parser.add_argument("--restarts", type=int, help="starts of the server for each cold request")
    parser.add_argument("--repeats", type=int, help="warm requests of each")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two writes")
    parser.add_argument("--readers", type=int, default=0, help="so many at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they read")
    parser.add_argument(
        "--think", type=float, default=0.0, help="seconds that a reader looks (0: all ask always)"
    )
    parser.add_argument("--growth", action="store_true", help="one year against four")
    return parser.parse_args()


def measure(asked: argparse.Namespace, made: list[Path]) -> int:
    """All that was asked for; each part is on disk before the next one starts."""
    nights = round(NIGHTS_OF_A_YEAR * asked.years)
    shape = QUICK if asked.quick else Shape(nights=nights, models=asked.models)
    settings = Settings(
        asked.restarts or (1 if asked.quick else 5),
        100 if asked.quick else 1,
        asked.repeats or (5 if asked.quick else 40),
        asked.every,
        asked.readers,
        asked.seconds,
        asked.think,
    )
    recorder = Recorder(asked.out, shape)
    if not asked.no_routes or asked.readers or (asked.keep and not asked.growth):
        path = asked.db or default_path(shape)
        _have(path, shape, made, asked, recorder)
        if not asked.no_routes:
            recorder.part(lambda document: measure_routes(path, shape, settings, document))
        if asked.readers:
            recorder.part(lambda document: measure_readers(path, shape, settings, document))
    if asked.growth:
        one, four = (10, 40) if asked.quick else (NIGHTS_OF_A_YEAR, 4 * NIGHTS_OF_A_YEAR)
        shapes = _of_nights(shape, one), _of_nights(shape, four)
        paths = _place(asked.db, shapes[0]), _place(asked.db, shapes[1])
        for place, one_shape in zip(paths, shapes, strict=True):
            _have(place, one_shape, made, asked, recorder)
        recorder.part(lambda document: measure_growth(paths, shapes, settings.repeats, document))
    print(report.aims_text(recorder.aims))
    return 0


def _place(db: Path | None, shape: Shape) -> Path:
    """Beside the database that was named."""
    return db.with_name(f"{db.stem}-{shape.nights}.db") if db else default_path(shape)


def _of_nights(shape: Shape, nights: int) -> Shape:
    return Shape(nights, shape.models, shape.variants, min(shape.raw_nights, nights), shape.seed)


def _have(
    path: Path, shape: Shape, made: list[Path], asked: argparse.Namespace, recorder: Recorder
) -> None:
    """See to it that the history is there, and tell what it weighs."""
    new = not path.exists()
    if new and asked.db is None and not asked.keep:
        made.append(path)
    try:
        built = make(path, shape)
    except ValueError as error:
        raise BenchmarkError(f"{error}; name another place with --db, or remove it") from None
    weight = recorder.weight(shape) if built is None else None
    weight = weight or weigh(path)
    told = f"made in {built['seconds']:.0f} s" if built else "was there"
    print(f"{shape.nights} nights (synthetic) {told}: {size_words(weight)}\n", flush=True)
    recorder.database(shape, built, weight)


def main() -> int:
    """Measure, and clear up unless it was stopped: what was made is taken up again then."""
    asked = arguments()
    made: list[Path] = []
    try:
        code = measure(asked, made)
    except (BenchmarkError, UsageError) as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("\nstopped; the same command takes up a history that is there")
        return 130
    for path in made:
        remove(path)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
