"""The script a worker starts with: settle the memory layout first, then serve.

A process's speed depends by a per cent or more on where its code and data happen to lie. All arms
of a replicate are given the same layout, so that it cancels in their ratio, and every replicate
another one, so that no conclusion rests on a lucky one: address randomisation is switched off, and
a reserved stretch of `TORCHSTONE_LAYOUT` pages moves everything that is loaded after it. Where the
system does not allow that (some containers), layouts stay random and the record says so.

This file is copied, not imported, and must not import anything before the layout is settled.
"""

import os
import sys

VARIABLE = "TORCHSTONE_LAYOUT"
SETTLED = "settled:"
ADDR_NO_RANDOMIZE = 0x0040000
"""From <sys/personality.h>."""


def settle_layout() -> object:
    """Start again without randomisation, then reserve the stretch; returns what holds it."""
    layout = os.environ.get(VARIABLE, "")
    if layout.startswith(SETTLED):
        import mmap

        pages = int(layout[len(SETTLED) :])
        return mmap.mmap(-1, pages * mmap.PAGESIZE, prot=mmap.PROT_READ)
    if layout and sys.platform.startswith("linux"):
        import ctypes

        if ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE) != -1:
            os.environ[VARIABLE] = SETTLED + layout
            os.execv(sys.executable, sys.orig_argv)
    return None


if __name__ == "__main__":
    _stretch = settle_layout()

    from torchstone.measure.worker import main

    main()
