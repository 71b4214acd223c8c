"""How long it takes until a profile can be seen: in a real browser, beside SnakeViz.

Two profiles: a counted program of 50,000 functions, each with one caller, so that the icicle has
50,000 nodes in every viewer; and a chrome trace of about 100 MB. Per page: the time from the file
to the picture, the part of it until the page is painted, and the processor time that the browser's
renderer used for it, because on a shared machine the clock on the wall also counts the neighbours.
Ours reads the file before there is a page; SnakeViz's server does when the page is asked for. Then
the page is used: the longest frame during a zoom, a search and so on says whether it is fluid.
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

import view_fluid
from aa_report import table

from torchstone.profile import read_profile
from torchstone.show.profile_html import profile_html

NODES = 50_000
MEGABYTES = 100
ROUNDS = 5
MOST_ICICLE_S = 1.0
"""The aim: an icicle of 50,000 nodes is painted in less, by the median of the rounds."""
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
OURS_SHOWN = "performance.getEntriesByName('torchstone-mounted').length > 0"
SNAKEVIZ_SHOWN = "document.querySelectorAll('svg g rect, svg g path').length > 10"
PAINTED = "performance.getEntriesByName('view-painted')"
WATCH = """(() => {
  const look = () => {
    if (SHOWN) setTimeout(() => performance.mark('view-painted'));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
"""The same end for every viewer: the first frame that has the picture, when it is painted."""
AFTER_PAINT = (
    "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
)


@dataclass(frozen=True)
class View:
    """How one viewer showed one profile."""

    profile: str
    viewer: str
    painted_s: tuple[float, ...] = ()
    """From the address to the picture."""
    renderer_s: tuple[float, ...] = ()
    """Processor time of the renderer up to then."""
    bytes: int = 0
    """Of the page or of the file that it was given."""
    made_s: tuple[float, ...] = ()
    """Reading the file and writing the page, where that comes before."""
    note: str = ""

    @property
    def whole_s(self) -> tuple[float, ...]:
        """From the file to the picture, each round."""
        if not self.made_s:
            return self.painted_s
        return tuple(a + b for a, b in zip(self.made_s, self.painted_s, strict=True))


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

    def load(self, address: str, shown: str, tab: str = "") -> tuple[float, float]:
        """Seconds until painted, and processor seconds of the renderer."""
        before = self._renderers()
        with self._opened(address, shown) as page:
            if tab:
                began = page.evaluate("performance.now()")
                page.click(f"#tab-{tab}")
                seconds = (page.evaluate(AFTER_PAINT) - began) / 1000
            else:
                seconds = page.evaluate(f"{PAINTED}[0].startTime / 1000")
            used = sum(time_ - before.get(pid, 0.0) for pid, time_ in self._renderers().items())
        return seconds, used

    def use(self, address: str) -> dict[str, float]:
        """The longest frame of each thing that one does with our page."""
        with self._opened(address, OURS_SHOWN) as page:
            return view_fluid.use(page)

    @contextmanager
    def _opened(self, address: str, shown: str) -> Iterator[Any]:
        """A page that is painted, in a context of its own."""
        context = self.started.new_context(viewport=SIZE)
        try:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.route("**/*", _only_local)
            page.add_init_script(WATCH.replace("SHOWN", shown))
            page.goto(address, wait_until="commit")
            _wait(page)
            yield page
        finally:
            context.close()

    def _renderers(self) -> dict[int, float]:
        found = self.session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {one["id"]: one["cpuTime"] for one in found if one["type"] == "renderer"}

    def close(self) -> None:
        """End the browser."""
        self.started.close()


def _wait(page: Any) -> None:
    """Ask again and again; waiting inside the page needs `eval`, which our pages forbid."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(f"{PAINTED}.length > 0"):
        if time.monotonic() > end:
            raise TimeoutError("nothing was painted")
        page.wait_for_timeout(20)


def _only_local(route: Any) -> None:
    local = route.request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1"))
    route.continue_() if local else route.abort()


def ours(
    browser: Browser, name: str, file: Path, folder: Path, rounds: int, tabs: tuple[str, ...]
) -> list[View]:
    """Our page of a profile, made again each round, and the first sight of other tabs."""
    page = page_of(file, folder)
    views = []
    for tab in ("", *tabs):
        made, runs = [], []
        for _ in range(rounds):
            if not tab:
                began = time.perf_counter()
                page.write_text(profile_html([read_profile(file)], name), encoding="utf-8")
                made.append(time.perf_counter() - began)
            runs.append(browser.load(page.as_uri(), OURS_SHOWN, tab))
        viewer = f"torchstone, {tab} tab (click to paint)" if tab else "torchstone"
        painted, used = (tuple(run[i] for run in runs) for i in range(2))
        views.append(View(name, viewer, painted, used, page.stat().st_size, tuple(made)))
    return views


def page_of(file: Path, folder: Path) -> Path:
    """Where our page of a profile is written."""
    return folder / f"{file.name}.html"


def snakeviz(browser: Browser, name: str, file: Path, rounds: int) -> View:
    """SnakeViz on the same file, if it is installed."""
    if importlib.util.find_spec("snakeviz") is None:
        return View(name, "snakeviz", note=NOT_INSTALLED)
    with _served(file) as address:
        try:
            runs = [browser.load(address, SNAKEVIZ_SHOWN) for _ in range(rounds)]
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
    head = ("profile", "viewer", "file to picture", "worst", "of it made", "painted")
    head += ("renderer CPU", "page")
    rows: list[tuple[str, ...]] = []
    for view in views:
        if view.note:
            rows.append((view.profile, view.viewer, view.note, *[""] * 5))
            continue
        rows.append(
            (
                view.profile,
                view.viewer,
                f"{median(view.whole_s):.2f} s",
                f"{max(view.whole_s):.2f} s",
                f"{median(view.made_s):.2f} s" if view.made_s else "–",
                f"{median(view.painted_s):.2f} s",
                f"{median(view.renderer_s):.2f} s",
                f"{view.bytes / 1e6:.1f} MB",
            )
        )
    said = (
        "Medians of rounds. Starting Python, SnakeViz's server or the browser is in none of them."
    )
    return f"{table(head, rows, False)}\n\n{said}"


def aims(views: list[View], fluid: list[view_fluid.Fluid]) -> str:
    """What was aimed at, by the medians."""
    icicle = median(views[0].painted_s)
    met = "met" if icicle < MOST_ICICLE_S else "missed"
    said = (
        f"aim: the icicle of {views[0].profile} painted in under {MOST_ICICLE_S:g} s (median): "
        f"{icicle:.2f} s, {met}"
    )
    return f"{said}\n{view_fluid.aim(fluid)}"


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
        page = page_of(counted, folder).as_uri()
        fluid = view_fluid.gathered(name, [browser.use(page) for _ in range(wanted.rounds)])
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
    print(f"{report(views)}\n\n{view_fluid.report(fluid)}\n\n{aims(views, fluid)}")
    if wanted.out:
        data = {"views": [asdict(one) for one in views], "fluid": [asdict(one) for one in fluid]}
        wanted.out.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
