"""The benchmarks are scripts beside each other, not a package: their folder goes on the path."""

from __future__ import annotations

import sys

from tests.structure.places import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
