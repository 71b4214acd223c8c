"""Workloads of known composition: each step is a row of parts, and each part is timed alone too.

A workload is a function that returns its parts: (lines of the ledger that it should show up in, the
part). `python benchmarks/ledger_targets.py NAME` times the parts and prints the truth as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

Part = tuple[str, Callable[[], Any]]
PYTHON_STEPS = 40_000
TRUTH_ROUNDS = 60
OPS = "dispatch+kernels+allocator+pool"
COMPILED = "kernels+dispatch+allocator+wrapper+pool"
LEFT_ALONE = "interpreter+breaks+guards"
"""Python beside compiled code: getting out of it and in again is part of the price."""


def burn(count: int = PYTHON_STEPS) -> int:
    """Pure Python: some milliseconds."""
    total = 0
    for number in range(count):
        total += number & 7
    return total


def gemm(size: int = 320, times: int = 3) -> Callable[[], Any]:
    """A chain of matrix products: none of them can be left out."""
    a, b = torch.randn(size, size), torch.randn(size, size) / size**0.5

    def run() -> Any:
        out = a
        for _ in range(times):
            out = torch.mm(out, b)
        return out

    return run


def mix() -> list[Part]:
    return [("interpreter", burn), ("sleep", lambda: time.sleep(0.003)), (OPS, gemm())]


def python_only() -> list[Part]:
    return [("interpreter", burn), ("interpreter", burn)]


def collecting() -> list[Part]:
    """Cyclic garbage beside many living containers."""
    alive = [[number] for number in range(60_000)]

    def garbage() -> int:
        for _ in range(4000):
            pair: list[Any] = []
            pair.append(pair)
        return len(alive)

    return [("interpreter+collector", garbage), (OPS, gemm(times=1))]


def locked() -> list[Part]:
    """Another thread takes a lock when it is asked to, and keeps it for a while."""
    lock = threading.Lock()
    asked, taken = threading.Semaphore(0), threading.Semaphore(0)

    def hold() -> None:
        while True:
            asked.acquire()
            with lock:
                taken.release()
                time.sleep(0.003)

    threading.Thread(target=hold, daemon=True).start()

    def wait() -> None:
        asked.release()
        taken.acquire()
        with lock:
            pass

    return [("locks", wait), (OPS, gemm()), ("interpreter", burn)]


def lock_of_the_interpreter() -> list[Part]:
    """Another thread runs Python all the time."""

    def spin() -> None:
        while True:
            burn(10_000)

    threading.Thread(target=spin, daemon=True).start()
    return [("interpreter+gil", lambda: burn(150_000))]


class Slow(torch.utils.data.Dataset[Any]):
    """A sample takes a while to come."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.003)
        return torch.ones(16)


def loading() -> list[Part]:
    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=1))
    return [("loading", lambda: next(batches)), (OPS, gemm()), ("interpreter", burn)]


def tiny_ops() -> list[Part]:
    """Two thousand ops with nothing to do. The loop around them is Python, and next to nothing."""
    one = torch.ones(4)

    def run() -> Any:
        value = one
        for _ in range(2000):
            value = value * one
        return value

    return [("dispatch+allocator", run)]


def huge_op() -> list[Part]:
    return [("kernels+allocator+pool", gemm(size=1024, times=1))]


def layout() -> list[Part]:
    image = torch.randn(8, 64, 56, 56)

    def convert() -> Any:
        return image.contiguous(memory_format=torch.channels_last)

    return [("kernels+allocator", convert), ("interpreter", lambda: burn(80_000))]


def files() -> list[Part]:
    handle, path = tempfile.mkstemp()
    os.write(handle, bytes(8 << 20))
    os.close(handle)

    def read() -> int:
        with open(path, "rb", buffering=0) as file:
            return len(file.read())

    return [("files", read), ("interpreter", burn)]


def compiled_mix() -> list[Part]:
    """As `mix`, in parts that the compiler leaves alone and one that it compiles."""
    python: Any = torch.compiler.disable(burn)
    rest: Any = torch.compiler.disable(time.sleep)
    return [
        (LEFT_ALONE, python),
        ("sleep", lambda: rest(0.003)),
        (COMPILED, gemm()),
    ]


def compiled_huge_op() -> list[Part]:
    return [(COMPILED, gemm(size=1024, times=1))]


def compiled_chain() -> list[Part]:
    """Pointwise ops that the compiler makes one kernel of, beside Python that it leaves alone."""
    data = torch.randn(1 << 20)

    def chain() -> Any:
        value = data
        for _ in range(6):
            value = torch.relu(value + 0.1) * 0.9
        return value

    return [(LEFT_ALONE, torch.compiler.disable(burn)), (COMPILED, chain)]


def compiled_locked() -> list[Part]:
    wait, product, python = (part for _, part in locked())
    return [
        ("locks", torch.compiler.disable(wait)),
        (LEFT_ALONE, torch.compiler.disable(python)),
        (COMPILED, product),
    ]


def compiled_loading() -> list[Part]:
    load, product, python = (part for _, part in loading())
    return [
        ("loading", torch.compiler.disable(load)),
        (LEFT_ALONE, torch.compiler.disable(python)),
        (COMPILED, product),
    ]


WORKLOADS: dict[str, Callable[[], list[Part]]] = {
    "mix": mix,
    "python": python_only,
    "collecting": collecting,
    "locked": locked,
    "gil": lock_of_the_interpreter,
    "loading": loading,
    "tiny-ops": tiny_ops,
    "huge-op": huge_op,
    "layout": layout,
    "files": files,
    "compiled-mix": compiled_mix,
    "compiled-huge-op": compiled_huge_op,
    "compiled-chain": compiled_chain,
    "compiled-locked": compiled_locked,
    "compiled-loading": compiled_loading,
}
VARIANTS = {name: "inductor" for name in WORKLOADS if name.startswith("compiled-")}
LAYOUTS = {"layout": "kernels+allocator"}
"""Workloads whose copies must be named as such on level 4, and the part that copies."""


def _step(name: str) -> tuple[Callable[[], Any], tuple[()]]:
    """The parts one after the other. No loop: a graph break in one is compiled anew every time. The
    last one's output is returned: a compiler leaves out what nobody asks for."""
    parts = [part for _, part in WORKLOADS[name]()]
    first, middle, last = parts[0], parts[len(parts) // 2], parts[-1]

    def one(unused: Any = None) -> Any:
        return last()

    def two(unused: Any = None) -> Any:
        first()
        return last()

    def three(unused: Any = None) -> Any:
        first()
        middle()
        return last()

    return (one, two, three)[len(parts) - 1], ()


def make_mix() -> Any:
    return _step("mix")


def make_python() -> Any:
    return _step("python")


def make_collecting() -> Any:
    return _step("collecting")


def make_locked() -> Any:
    return _step("locked")


def make_gil() -> Any:
    return _step("gil")


def make_loading() -> Any:
    return _step("loading")


def make_tiny_ops() -> Any:
    return _step("tiny-ops")


def make_huge_op() -> Any:
    return _step("huge-op")


def make_layout() -> Any:
    return _step("layout")


def make_files() -> Any:
    return _step("files")


def make_compiled_mix() -> Any:
    return _step("compiled-mix")[0], (torch.ones(1),)


def make_compiled_huge_op() -> Any:
    return _step("compiled-huge-op")[0], (torch.ones(1),)


def make_compiled_chain() -> Any:
    return _step("compiled-chain")[0], (torch.ones(1),)


def make_compiled_locked() -> Any:
    return _step("compiled-locked")[0], (torch.ones(1),)


def make_compiled_loading() -> Any:
    return _step("compiled-loading")[0], (torch.ones(1),)


def truth(name: str) -> dict[str, Any]:
    """Each part alone and the whole, in turns: wall and CPU time of this thread, medians."""
    torch.set_grad_enabled(False)
    # A compiled part's time alone is that of its compiled code, too.
    parts = [
        (lines, torch.compile(part) if lines == COMPILED else part)
        for lines, part in WORKLOADS[name]()
    ]
    for _, part in parts:
        part()
    rows: list[list[tuple[int, int]]] = [[] for _ in parts]
    whole: list[int] = []
    for _ in range(TRUTH_ROUNDS):
        for row, (_, part) in zip(rows, parts, strict=True):
            row.append(_time(part))
        started = time.perf_counter_ns()
        for _, part in parts:
            part()
        whole.append(time.perf_counter_ns() - started)
    found: dict[str, float] = {}
    for (lines, _), row in zip(parts, rows, strict=True):
        off = statistics.fmean(max(0, wall - cpu) for wall, cpu in row)
        cpu = _undisturbed([cpu for _, cpu in row])
        blocked = off if _blocks(lines) else 0.0
        found[lines] = found.get(lines, 0.0) + cpu + blocked
    if name == "gil":
        cpu = _undisturbed([cpu for _, cpu in rows[0]])
        found = {"interpreter": cpu, "gil": sum(found.values()) - cpu}
    if name == "collecting":
        found = _apart(found, parts[0])
    return {"parts": found, "wall": statistics.median(whole)}


def _undisturbed(values: list[int]) -> float:
    """The lower quartile: a neighbour on the same core only ever adds."""
    return statistics.quantiles(values, n=4)[0]


def _blocks(lines: str) -> bool:
    return any(word in lines.split("+") for word in ("sleep", "locks", "gil", "loading", "files"))


def _apart(found: dict[str, float], part: Part) -> dict[str, float]:
    """What the collector takes, by its own word. Without it the same garbage takes longer to make:
    memory that nobody frees is always fresh."""
    lines, make = part
    started, took = [0], [0]

    def watch(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            started[0] = time.thread_time_ns()
        else:
            took[0] += time.thread_time_ns() - started[0]

    gc.callbacks.append(watch)
    total = statistics.fmean(_time(make)[1] for _ in range(2 * TRUTH_ROUNDS))
    gc.callbacks.remove(watch)
    collector = took[0] / (2 * TRUTH_ROUNDS)
    rest = {name: ns for name, ns in found.items() if name != lines}
    return {**rest, "interpreter": total - collector, "collector": collector}


def _time(part: Callable[[], Any]) -> tuple[int, int]:
    """Wall time, without what the thread waited for a core, and CPU time."""
    waited = _waited()
    wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
    part()
    wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
    return wall - (_waited() - waited), cpu


def _waited() -> int:
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])


if __name__ == "__main__":
    print(json.dumps(truth(sys.argv[1])))
