"""PostgreSQL beside SQLite: many writers at once, and every page on the same history.

    python benchmarks/postgres.py writers --seconds 60 --out build/postgres.json
    python benchmarks/postgres.py pages --nights 70 --models 30 --out build/postgres.json

Starts a server of its own from Debian's package, with the server's own settings; --url names
another, empty database. `writers`: processes store the cases of shared runs, each case tried by two
of them and a quarter of the processes killed half-way; then what is stored is set against what was
acknowledged. `pages`: a synthetic history is made in SQLite and copied (`torchstone db copy`); two
real servers are then asked for every page and route by turns, nobody writing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "store")]

from dashboard_report import Times  # noqa: E402
from store_runs import make_case, make_run  # noqa: E402

from torchstone.store import AlreadyStored, open_store  # noqa: E402

CASES = 200
"""Of a run: as many as an ordinary suite has."""
RUNS = 1000


@contextmanager
def database(asked: argparse.Namespace) -> Iterator[str]:
    """The address of an empty one."""
    from tests.postgres import server

    if asked.url:
        yield asked.url
        return
    with server(durable=True) as started:
        yield started.empty()


# Writers.


def write(url: str, number: int, writers: int, end: float, log: Path) -> None:
    """Store case after case until killed or late, and say what was acknowledged."""
    with log.open("w", buffering=1) as said, open_store(url) as store:
        for name in range(RUNS):
            run = make_run(f"run-{name}", CASES)
            store.begin_run(run)
            mine = [at for at in range(CASES) if number in (at % writers, (at + 1) % writers)]
            for position in mine:
                if time.time() > end:
                    return
                result, figures = make_case(run, position)
                if result is not None:  # an attempt of its own
                    result = replace(result, id=f"{result.id}-{number}")
                    figures = replace(figures, result_id=result.id)
                began = time.perf_counter()
                try:
                    store.add_cases(run.id, result, [(position, figures)])
                    word = "stored"
                except AlreadyStored:
                    word = "taken"
                print(word, name, position, time.perf_counter() - began, file=said)


def measure_writers(asked: argparse.Namespace) -> dict[str, Any]:
    """So many processes for so many seconds; what was lost and what was doubled."""
    with ExitStack() as stack:
        url = stack.enter_context(database(asked))
        open_store(url).close()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        logs = [folder / str(number) for number in range(asked.writers)]
        end = _run_writers(asked, url, logs)
        said = [line.split() for log in logs for line in log.read_text().splitlines()]
        said = [line for line in said if len(line) == 4]  # a kill may cut the last
        stored = Counter((int(run), int(at)) for word, run, at, _ in said if word == "stored")
        took = Times.of([float(line[3]) * 1e3 for line in said])
        with open_store(url, read_only=True) as store:
            heads = {head.id: head for head in store.run_heads(limit=RUNS)}
            there = {(int(name[4:]), at) for name in heads for at in store.done_positions(name)}
            counts = {name: len(store.cases(name)) for name in heads}
            readable = sum(len(store.load(one).arms) > 0 for n in heads for one in
                           store.result_ids(n)[:5])  # fmt: skip
    wrong = [name for name, head in heads.items() if head.done != counts[name]]
    return {
        "writers": asked.writers, "killed": asked.writers // 4, "seconds": end,
        "acknowledged": sum(stored.values()), "stored": len(there),
        "lost": len(set(stored) - there), "doubled": sum(n - 1 for n in stored.values()),
        "not_acknowledged": len(there - set(stored)),  # committed by one that was killed then
        "taken_by_another": sum(line[0] == "taken" for line in said),
        "cases_a_second": len(there) / end, "ms": asdict(took),
        "runs_summed_up_wrongly": wrong, "results_read": readable,
    }  # fmt: skip


def _run_writers(asked: argparse.Namespace, url: str, logs: list[Path]) -> float:
    """Forked, so that all begin at once; the seconds that they took."""
    began, made = time.time(), multiprocessing.get_context("fork")
    processes = [
        made.Process(target=write, args=(url, n, asked.writers, began + asked.seconds, log))
        for n, log in enumerate(logs)
    ]
    for process in processes:
        process.start()
    time.sleep(asked.seconds / 2)
    for process in processes[: asked.writers // 4]:
        process.kill()
    for process in processes:
        process.join()
    return time.time() - began


# Pages.


def measure_pages(asked: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of every page and route on both."""
    from dashboard_history import Shape
    from dashboard_kept import make
    from dashboard_routes import pages, routes
    from dashboard_server import again, serving

    from torchstone.store.copying import copy

    shape = Shape(asked.nights, asked.models, raw_nights=min(3, asked.nights))
    with ExitStack() as stack:
        url = stack.enter_context(database(asked))
        path = asked.db or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "history.db"
        make(path, shape)
        began = time.perf_counter()
        with open_store(str(path), read_only=True) as one, open_store(url) as other:
            copied = copy(one, other, lambda what, done, total: None)
            seconds = time.perf_counter() - began
            sizes = one.size().file_bytes, other.size().file_bytes
            known_pages = pages(one)
        servers = [stack.enter_context(serving(place)) for place in (path, url)]  # type: ignore[arg-type]
        known = routes(servers[0], known_pages)
        took: dict[str, tuple[list[float], list[float]]] = {one.name: ([], []) for one in known}
        chance, different = random.Random(0), set()
        for number in range(asked.repeats + 1):
            for one in chance.sample(known, len(known)):
                bodies = {}
                for side in chance.sample((0, 1), 2):
                    answer = servers[side].must_get(again(one.address, number))
                    bodies[side] = len(answer.body)
                    if number:  # the first round is the warm-up
                        took[one.name][side].append(answer.ms)
                if bodies[0] != bodies[1]:
                    different.add(one.name)
    lines = {
        name: {"sqlite": asdict(Times.of(a)), "postgresql": asdict(Times.of(b))}
        for name, (a, b) in took.items()
    }
    return {
        "shape": asdict(shape), "cases": shape.nights * shape.cases, "copy_s": seconds,
        "rows": sum(copied.tables.values()), "bytes": sizes, "routes": lines,
        "answers_of_another_length": sorted(different),
    }  # fmt: skip


def pages_text(found: dict[str, Any]) -> str:
    """A table, the worst ratio first."""
    rows = []
    for name, line in found["routes"].items():
        one, other = line["sqlite"]["p95"], line["postgresql"]["p95"]
        rows.append((other / one, name, one, other))
    rows.sort(reverse=True)
    text = [f"{found['cases']:,} cases, {found['rows']:,} rows copied in {found['copy_s']:.0f} s"]
    text += [f"{'p95, ms':<40} {'SQLite':>8} {'PostgreSQL':>10} {'ratio':>6}"]
    text += [f"{name:<40} {a:>8.1f} {b:>10.1f} {ratio:>6.2f}" for ratio, name, a, b in rows]
    slow = sum(ratio > 2 for ratio, *_ in rows)
    return "\n".join([*text, f"{slow} of {len(rows)} take more than twice as long"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["writers", "pages"])
    parser.add_argument("--url", default="", help="an empty database of a server that runs")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nights", type=int, default=70)
    parser.add_argument("--models", type=int, default=30, help="of each suite, a night")
    parser.add_argument("--repeats", type=int, default=20, help="requests of each address")
    parser.add_argument("--db", type=Path, help="make the SQLite history here, or use that one")
    parser.add_argument("--out", type=Path, default=Path("build/postgres.json"))
    asked = parser.parse_args()
    found = measure_writers(asked) if asked.what == "writers" else measure_pages(asked)
    document = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    document |= {asked.what: found, "cores": len(os.sched_getaffinity(0))}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(document, indent=1) + "\n")
    print(pages_text(found) if asked.what == "pages" else json.dumps(found, indent=1))
    if asked.what == "writers":
        return int(bool(found["lost"] or found["doubled"] or found["runs_summed_up_wrongly"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
