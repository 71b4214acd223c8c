"""The processor's real clock, from chains of instructions whose length in cycles is known.

What the system calls the clock is a nominal figure, and inside a guest a constant. A chain in which
every addition needs the result of the one before it takes one cycle a link on every processor of
the last decades, whatever else the core could do beside it. A second chain, of multiplications,
stands by: it must take a whole number of cycles that is known for the architecture, else the
assumption does not hold here and no clock is given.

The code is a page of machine instructions, written, then made executable and no longer writable,
and unmapped at the end. On x86-64 it has run; on 64-bit Arm it is written from the architecture's
manual and has not.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns as _now

from torchstone.machine.hardware import best_rate
from torchstone.machine.processes import read_int, read_text
from torchstone.records import Peak

SLOWEST_HZ, FASTEST_HZ = 50e6, 10e9
"""No processor or accelerator that runs torch has a clock outside these. A unit mistaken for
another is off by a thousand and falls outside."""

LINKS = 128
"""Instructions in the body of the loop: the jump and the count run beside the chain."""
ADD_LOOPS, MULTIPLY_LOOPS = 1500, 500
"""About 60 µs each at 3 GHz: short enough to pass between two interruptions."""
ROUNDS = 20
ATTEMPTS = 3
"""When the chains disagree, more rounds are added before it is believed."""
TOLERANCE = 0.02
"""How far the measured latency of a multiplication may lie from a whole number of cycles."""

_HZ_PER = {"MHz": 1e6, "kHz": 1e3}


@dataclass(frozen=True)
class ClockReading:
    """The clock in Hz, or None and the reason."""

    peak: Peak | None
    reason: str = ""


@dataclass(frozen=True)
class _Chains:
    """Two functions of one argument, the number of loops, as machine code."""

    add: bytes
    multiply: bytes
    latencies: tuple[int, ...]
    """What a multiplication of 64 bits may take, in cycles."""


def measure_clock(rounds: int = ROUNDS) -> ClockReading:
    """The clock of the core that this runs on: the best of many short samples, a few ms in all."""
    chains = _chains(platform.machine())
    if chains is None:
        return ClockReading(None, f"no instruction chain is known for {platform.machine()}")
    try:
        with _executable(chains) as (add, multiply):
            return _read(add, multiply, chains.latencies, rounds)
    except (OSError, AttributeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        return ClockReading(None, f"this system does not let us run a page of our own: {said}")


def nominal_clock_hz(root: str = "/") -> float | None:
    """What the system calls the clock, for comparison only; None where it does not say."""
    folder = os.path.join(root, "sys/devices/system/cpu/cpu0/cpufreq")
    text = read_text(os.path.join(root, "proc/cpuinfo")) or ""
    with contextlib.suppress(ValueError):
        for name in ("base_frequency", "cpuinfo_max_freq"):
            khz = read_int(os.path.join(folder, name))
            if khz:
                return hz_from(khz, "kHz")
        found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", text, re.M)
        if found:
            return hz_from(float(found[1]), "MHz")
    return None


def hz_from(value: float, unit: str) -> float:
    """Hertz from `kHz` or `MHz`; `ValueError` when the figure cannot have been in that unit."""
    hz = value * _HZ_PER[unit]
    if not SLOWEST_HZ <= hz <= FASTEST_HZ:
        raise ValueError(f"{value:g} {unit} is not the clock of anything that computes")
    return hz


Chain = Callable[[int], None]


def _read(
    add: Chain, multiply: Chain, latencies: tuple[int, ...], rounds: int = ROUNDS
) -> ClockReading:
    call_ns = min(_time(add, 1) for _ in range(rounds))
    add_ns: list[float] = []
    multiply_ns: list[float] = []
    latency = 0.0
    for _ in range(ATTEMPTS):
        for _ in range(rounds):
            add_ns.append(_link_ns(add, ADD_LOOPS, call_ns))
            multiply_ns.append(_link_ns(multiply, MULTIPLY_LOOPS, call_ns))
        if min(*add_ns, *multiply_ns) <= 0:
            return ClockReading(None, "the timer is too coarse for a chain of instructions")
        latency = min(multiply_ns) / min(add_ns)
        if any(abs(latency / known - 1) <= TOLERANCE for known in latencies):
            break
    else:
        return ClockReading(
            None,
            f"the chains disagree: a multiplication took {latency:.2f} additions, which fits none"
            f" of the known latencies ({', '.join(map(str, latencies))})",
        )
    note = f"a chain of additions; a multiplication took {latency:.2f} of them"
    peak = best_rate((1e9 / ns for ns in add_ns), Peak(0.0, note=note))
    if peak is None or not SLOWEST_HZ <= peak.value <= FASTEST_HZ:
        return ClockReading(None, "the chain gave a clock that cannot be")
    return ClockReading(peak)


def _time(chain: Chain, loops: int) -> int:
    start = _now()
    chain(loops)
    return _now() - start


def _link_ns(chain: Chain, loops: int, call_ns: int) -> float:
    # The call itself holds one loop.
    return (_time(chain, loops) - call_ns) / ((loops - 1) * LINKS)


@contextlib.contextmanager
def _executable(chains: _Chains) -> Iterator[tuple[Chain, Chain]]:
    """Both functions in a page of their own: first writable, then executable, never both."""
    library = ctypes.CDLL(None, use_errno=True)
    protect = library.mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    start = -(-len(chains.add) // 64) * 64
    code = chains.add.ljust(start, b"\0") + chains.multiply
    size = -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE
    page = mmap.mmap(
        -1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
    )
    try:
        page.write(code)
        held = ctypes.c_char.from_buffer(page)
        address = ctypes.addressof(held)
        del held  # it would keep the page from being unmapped
        # Linux cleans the instruction cache when a page is first mapped executable.
        if protect(address, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        # PYFUNCTYPE holds the interpreter's lock: taking it back would be timed too.
        function = ctypes.PYFUNCTYPE(None, ctypes.c_uint64)
        yield function(address), function(address + start)
    finally:
        page.close()


def _chains(machine: str) -> _Chains | None:
    if ctypes.sizeof(ctypes.c_void_p) != 8 or os.name != "posix":
        return None
    if machine in ("x86_64", "AMD64", "amd64"):
        return _x86_64()
    if machine in ("aarch64", "arm64"):
        return _aarch64()
    return None


def _x86_64() -> _Chains:
    """`add rax, rcx` and `imul rax, rcx`; the argument is in rdi.

    Both operands are registers: newer cores do additions of small constants while renaming, several
    in one cycle. The product takes 3 cycles on Intel since Nehalem and AMD since Zen, 4 on AMD's
    K8 and K10, 5 on Intel's small cores (published instruction tables). Not 6: additions done
    two in a cycle would look like that.
    """

    def loop(body: bytes) -> bytes:
        start = b"\xf3\x0f\x1e\xfa" + b"\xb8\x01\0\0\0" + b"\xb9\x01\0\0\0"  # endbr64; eax, ecx = 1
        inner = body * LINKS + b"\x48\xff\xcf"  # dec rdi
        back = -(len(inner) + 6)
        return start + inner + b"\x0f\x85" + back.to_bytes(4, "little", signed=True) + b"\xc3"

    return _Chains(loop(b"\x48\x01\xc8"), loop(b"\x48\x0f\xaf\xc1"), (3, 4, 5))


def _aarch64() -> _Chains:
    """`add x1, x1, x2` and `mul x1, x1, x2`; the argument is in x0. Written, not run.

    Published tables give the product of 64 bits 2 to 5 cycles, by core.
    """

    def loop(body: int) -> bytes:
        words = [0xD2800021, 0xD2800022]  # x1 = 1, x2 = 1
        words += [body] * LINKS
        words += [0xF1000400]  # subs x0, x0, #1
        words += [0x54000001 | ((-(LINKS + 1) & 0x7FFFF) << 5)]  # b.ne to the first of the body
        words += [0xD65F03C0]  # ret
        return b"".join(word.to_bytes(4, "little") for word in words)

    return _Chains(loop(0x8B020021), loop(0x9B027C21), (2, 3, 4, 5))
