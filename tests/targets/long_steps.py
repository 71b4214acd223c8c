"""Steps of more than 10 ms, so that arms take turns call by call. No torch."""

from __future__ import annotations

import os
import time
from pathlib import Path

LONG_S = 0.012


def draw(seed: int) -> tuple[list[int]]:
    return ([(seed * 31 + i * 7) % 1009 for i in range(50)],)


def squares(values: list[int]) -> int:
    time.sleep(LONG_S)
    return sum(value * value for value in values)


def make():
    return squares, draw


def make_noted():
    """Notes which inputs were drawn in which process."""

    def draw_noted(seed: int) -> tuple[list[int]]:
        with Path(os.environ["TORCHSTONE_TEST_BUILT"]).open("a") as file:
            file.write(f"{os.getpid()}:{seed}\n")
        return draw(seed)

    return squares, draw_noted


def make_later_wrong():
    """Right in the pass alone and in warm-up, wrong from some later call on."""
    calls = [0]

    def tired(values: list[int]) -> int:
        calls[0] += 1
        return squares(values) + (calls[0] > 60)

    return tired, draw


def make_process():
    """Says in a file which process it was built in."""
    with Path(os.environ["TORCHSTONE_TEST_BUILT"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return squares, draw


def make_dies_beside():
    """Ends its process when another arm has been built in it before."""
    here = Path(os.environ["TORCHSTONE_TEST_BUILT"])
    first = str(os.getpid()) not in here.read_text().split()
    with here.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if not first:
        os._exit(3)
    return squares, draw
