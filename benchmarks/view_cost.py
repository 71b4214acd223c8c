"""How long it takes until a profile can be seen: in a real browser, beside SnakeViz.

Two profiles: a counted program of 50,000 functions, each with one caller, so that the icicle has
50,000 nodes in every viewer; and a chrome trace of about 100 MB. Per page: the time until it is
painted, and the processor time that the browser's renderer used for it, because on a shared
machine the clock on the wall also counts the neighbours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import marshal
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from aa_report import table

from torchstone.profile import read_profile
from torchstone.show.profile_html import profile_html

NODES = 50_000
MEGABYTES = 100
ROUNDS = 5
MOST_ICICLE_S = 1.0
"""The aim: an icicle of 50,000 nodes is painted in less."""
NOT_INSTALLED = "not installed"
SIZE = {"width": 1400, "height": 900}
PATIENCE_MS = 180_000
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OURS_PAINTED = "performance.getEntriesByName('torchstone-painted').length > 0"
SNAKEVIZ_PAINTED = "document.querySelectorAll('svg g rect, svg g path').length > 10"
AFTER_PAINT = (
    "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
)


@dataclass(frozen=True)
class View:
    """How one viewer showed one profile."""

    profile: str
    viewer: str
    painted_s: tuple[float, ...] = ()
    renderer_s: tuple[float, ...] = ()
    """Processor time of the renderer up to then."""
    bytes: int = 0
    """Of the page or of the file that it was given."""
    made_s: float | None = None
    """Reading the file and writing the page."""
    note: str = ""


def write_counted(path: Path, functions: int, seed: int = 0) -> None:
    """A pstats file of so many functions that form one tree of calls."""
    chance = random.Random(seed)
    parents = [-1]
    for number in range(1, functions):
        # Mostly young parents: paths as deep as those of real programs.
        young = number - 1 - min(number - 1, int(chance.expovariate(1 / 60)))
        parents.append(young if chance.random() < 0.8 else chance.randrange(number))
    own = [chance.paretovariate(1.1) * 1e-6 for _ in parents]
    total = own.copy()
    for number in range(functions - 1, 0, -1):
        total[parents[number]] += total[number]
    files = [f"/lib/package{n % 40}/part{n // 40}.py" for n in range(1000)]
    keys = [(files[n % 1000], n // 50 + 1, f"function_{n}") for n in range(functions)]
    stats: dict[Any, Any] = {}
    for number, key in enumerate(keys):
        figures = (1, 1, own[number], total[number])
        callers = {} if number == 0 else {keys[parents[number]]: figures}
        stats[key] = (*figures, callers)
    path.write_bytes(marshal.dumps(stats))


def write_trace(path: Path, megabytes: float, seed: int = 0) -> int:
    """A chrome trace such as a profiled training loop leaves, of about this size; its events."""
    chance = random.Random(seed)
    wanted, at, events = int(megabytes * 1e6), 0.0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        file.write('{"ph":"M","name":"thread_name","pid":7,"tid":1,"args":{"name":"main"}}')
        while file.tell() < wanted:
            for event in _step(chance, at):
                file.write(",\n" + json.dumps(event))
                events += 1
            at += 900.0
        file.write("\n]}\n")
    return events


def _step(chance: random.Random, at: float) -> Iterator[dict[str, Any]]:
    """One step: forward and backward, forty ops each, with what they call."""

    def event(name: str, start: float, length: float, tid: int = 1) -> dict[str, Any]:
        args = {"External id": int(start), "Ev Idx": int(at), "Sequence number": int(length)}
        return {
            "ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": tid,
            "ts": round(start, 3), "dur": round(length, 3), "args": args,
        }  # fmt: skip

    yield event("ProfilerStep", at, 880.0)
    for phase, first in (("forward", at + 5), ("backward", at + 440)):
        yield event(phase, first, 430.0, 1)
        for op in range(40):
            start = first + 2 + op * 10.5
            length = 3 + 7 * chance.random()
            name = chance.choice(("linear", "relu", "add", "layer_norm", "softmax", "conv2d"))
            yield event(f"aten::{name}", start, length)
            yield event(f"aten::{name}_kernel", start + 0.5, length / 2)


class Browser:
    """One Chromium; every page is loaded in a fresh context."""

    def __init__(self, playwright: Any, chromium: str) -> None:
        self.started = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        self.session = self.started.new_browser_cdp_session()

    def load(self, address: str, painted: str, tab: str = "") -> tuple[float, float]:
        """Seconds until painted, and processor seconds of the renderer."""
        context = self.started.new_context(viewport=SIZE)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.route("**/*", _only_local)
        before = self._renderers()
        page.goto(address, wait_until="commit")
        _wait(page, painted)
        if tab:
            shown = page.evaluate("performance.now()")
            page.click(f"#tab-{tab}")
            seconds = (page.evaluate(AFTER_PAINT) - shown) / 1000
        elif painted == OURS_PAINTED:
            mark = "performance.getEntriesByName('torchstone-painted')[0].startTime / 1000"
            seconds = page.evaluate(mark)
        else:
            seconds = page.evaluate(AFTER_PAINT) / 1000
        used = sum(time_ - before.get(pid, 0.0) for pid, time_ in self._renderers().items())
        context.close()
        return seconds, used

    def _renderers(self) -> dict[int, float]:
        found = self.session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {one["id"]: one["cpuTime"] for one in found if one["type"] == "renderer"}

    def close(self) -> None:
        """End the browser."""
        self.started.close()


def _wait(page: Any, painted: str) -> None:
    """Ask again and again; waiting inside the page needs `eval`, which our pages forbid."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(painted):
        if time.monotonic() > end:
            raise TimeoutError("nothing was painted")
        page.wait_for_timeout(20)


def _only_local(route: Any) -> None:
    local = route.request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1"))
    route.continue_() if local else route.abort()


def ours(
    browser: Browser, name: str, file: Path, folder: Path, rounds: int, tabs: tuple[str, ...]
) -> list[View]:
    """Our page of a profile, and the first sight of other tabs."""
    began = time.perf_counter()
    page = folder / f"{file.name}.html"
    page.write_text(profile_html([read_profile(file)], name), encoding="utf-8")
    made = time.perf_counter() - began
    views = []
    for tab in ("", *tabs):
        runs = [browser.load(page.as_uri(), OURS_PAINTED, tab) for _ in range(rounds)]
        viewer = f"torchstone, {tab} tab (click to paint)" if tab else "torchstone"
        views.append(
            View(
                name,
                viewer,
                tuple(run[0] for run in runs),
                tuple(run[1] for run in runs),
                page.stat().st_size,
                None if tab else made,
            )
        )
    return views


def snakeviz(browser: Browser, name: str, file: Path, rounds: int) -> View:
    """SnakeViz on the same file, if it is installed."""
    if importlib.util.find_spec("snakeviz") is None:
        return View(name, "snakeviz", note=NOT_INSTALLED)
    with _served(file) as address:
        try:
            runs = [browser.load(address, SNAKEVIZ_PAINTED) for _ in range(rounds)]
        except Exception as error:  # a viewer that gives up is a result
            return View(name, "snakeviz", note=f"not painted: {str(error).splitlines()[0][:80]}")
    return View(
        name,
        "snakeviz",
        tuple(run[0] for run in runs),
        tuple(run[1] for run in runs),
        file.stat().st_size,
    )


@contextmanager
def _served(file: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "snakeviz",
        "-s",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
        str(file),
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/snakeviz/{str(file).replace('/', '%2F')}"
    finally:
        server.terminate()
        server.wait()


def report(views: list[View]) -> str:
    """The figures as a table."""
    head = ("profile", "viewer", "painted, least", "median", "renderer CPU", "page", "made in")
    rows: list[tuple[str, ...]] = []
    for view in views:
        if view.note:
            rows.append((view.profile, view.viewer, view.note, "", "", "", ""))
            continue
        rows.append(
            (
                view.profile,
                view.viewer,
                f"{min(view.painted_s):.2f} s",
                f"{median(view.painted_s):.2f} s",
                f"{median(view.renderer_s):.2f} s",
                f"{view.bytes / 1e6:.1f} MB",
                "" if view.made_s is None else f"{view.made_s:.1f} s",
            )
        )
    return table(head, rows, False)


def main() -> int:
    """Measure, print, and keep the figures if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--megabytes", type=float, default=MEGABYTES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if importlib.util.find_spec("playwright") is None or chromium is None:
        print("Needs Chromium, and playwright from PyPI to drive it.")
        return 2
    from playwright.sync_api import sync_playwright

    views: list[View] = []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place)
        counted, traced = folder / "counted.prof", folder / "trace.json"
        write_counted(counted, wanted.nodes)
        events = write_trace(traced, wanted.megabytes)
        browser = Browser(playwright, chromium)
        # The first page of a browser pays for the browser itself.
        browser.load("data:text/html,<p>warm", "true")
        name = f"{wanted.nodes:,} nodes"
        views += ours(browser, name, counted, folder, wanted.rounds, ("functions",))
        views.append(snakeviz(browser, name, counted, wanted.rounds))
        size = traced.stat().st_size / 1e6
        views += ours(
            browser,
            f"{size:.0f} MB trace, {events:,} events",
            traced,
            folder,
            wanted.rounds,
            ("time",),
        )
        browser.close()
    print(report(views))
    icicle = min(views[0].painted_s)
    met = "met" if icicle < MOST_ICICLE_S else "missed"
    print(
        f"\naim: the icicle of {name} painted in under {MOST_ICICLE_S:g} s: {icicle:.2f} s, {met}"
    )
    if wanted.out:
        wanted.out.write_text(
            json.dumps([asdict(view) for view in views], indent=1), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
