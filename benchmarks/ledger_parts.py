"""The parts of workloads of known composition, each a pair: lines of the ledger that it should show
up in, and what is called."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

Part = tuple[str, Callable[[], Any]]
PYTHON_STEPS = 40_000
OPS = "dispatch+kernels+allocator+pool"
COMPILED = "kernels+dispatch+allocator+wrapper+pool"
LEFT = "breaks+guards"
"""What leaving compiled code and entering it again takes; the Python in between is Python's."""


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


def disabled(call: Callable[..., Any]) -> Callable[..., Any]:
    """Left alone by the compiler: Python runs it, in a graph break."""
    disable: Any = torch.compiler.disable
    left: Callable[..., Any] = disable(call)
    return left


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
    """Two thousand ops with nothing to do, and the loop around them with no op in it."""
    one = torch.ones(4)

    def loop() -> Any:
        value = one
        for _ in range(2000):
            value = one
        return value

    def run() -> Any:
        value = one
        for _ in range(2000):
            value = value * one
        return value

    return [("interpreter", loop), ("dispatch+allocator", run)]


def huge_op() -> list[Part]:
    return [("kernels+allocator+pool", gemm(size=1024, times=1))]


def layout() -> list[Part]:
    image = torch.randn(8, 64, 56, 56)

    def convert() -> Any:
        return image.contiguous(memory_format=torch.channels_last)

    return [("kernels+allocator", convert), ("interpreter", lambda: burn(80_000))]


def files() -> list[Part]:
    kept = tempfile.NamedTemporaryFile()  # noqa: SIM115 - gone with the process
    kept.write(bytes(8 << 20))
    kept.flush()

    def read() -> int:
        with open(kept.name, "rb", buffering=0) as file:
            return len(file.read())

    return [("files", read), ("interpreter", burn)]


def with_grad() -> list[Part]:
    """Ops with nothing to do, and the same with a weight: making and freeing nodes is autograd."""
    one, weight = torch.ones(4), torch.ones(4, requires_grad=True)

    def run() -> None:
        for _ in range(2000):
            weight * one

    return [("dispatch+allocator", torch.no_grad()(run)), (AUTOGRAD, run)]


AUTOGRAD = "autograd+interpreter"
"""Of ops with gradients: a node is freed where Python drops its tensor, and that is between ops."""


def compiled_mix() -> list[Part]:
    """As `mix`, in parts that the compiler leaves alone and one that it compiles."""
    rest = disabled(time.sleep)
    return [("interpreter", disabled(burn)), ("sleep", lambda: rest(0.003)), (COMPILED, gemm())]


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

    return [("interpreter", disabled(burn)), (COMPILED, chain)]


def compiled_locked() -> list[Part]:
    wait, product, python = (part for _, part in locked())
    return [("locks", disabled(wait)), ("interpreter", disabled(python)), (COMPILED, product)]


def compiled_loading() -> list[Part]:
    load, product, python = (part for _, part in loading())
    return [("loading", disabled(load)), ("interpreter", disabled(python)), (COMPILED, product)]


def compiled_collecting() -> list[Part]:
    (lines, garbage), _ = collecting()
    return [(lines, disabled(garbage)), (COMPILED, gemm())]


def compiled_files() -> list[Part]:
    read, python = (part for _, part in files())
    return [("files", disabled(read)), ("interpreter", disabled(python)), (COMPILED, gemm())]


def compiled_layout() -> list[Part]:
    """Python first: what the compiler makes of the copy is returned."""
    convert, python = (part for _, part in layout())
    return [("interpreter", disabled(python)), (COMPILED, convert)]


def compiled_tiny_ops() -> list[Part]:
    """Products that no compiler fuses: each is a call from generated code."""
    one = torch.eye(4)

    def run() -> Any:
        value = one
        for _ in range(200):
            value = torch.mm(value, one)
        return value

    return [("interpreter", disabled(lambda: burn(10_000))), (COMPILED, run)]


BREAKS = 8


def nothing() -> None:
    pass


def compiled_breaks() -> list[Part]:
    """Products with a break after each; alone they are plain products, and all that the step takes
    more is the price of compiled code that is left and entered."""
    return [(OPS, gemm(size=128, times=BREAKS + 1))]


def broken_products() -> Callable[..., Any]:
    """The step of `compiled_breaks`."""
    a, b = torch.randn(128, 128), torch.randn(128, 128) / 128**0.5
    leave = disabled(nothing)

    def step(unused: Any = None) -> Any:
        out = torch.mm(a, b)
        leave()
        out = torch.mm(out, b)
        leave()
        out = torch.mm(out, b)
        leave()
        out = torch.mm(out, b)
        leave()
        out = torch.mm(out, b)
        leave()
        out = torch.mm(out, b)
        leave()
        out = torch.mm(out, b)
        leave()
        out = torch.mm(out, b)
        leave()
        return torch.mm(out, b)

    return step
