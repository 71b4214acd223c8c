"""How a workload is run: backend, precision, mode.

Holds: variants (small transforms of a callable that say which contract fields they may change), the
precisions, and the step that inference or training times. Touches: `records`, `workloads`, and
torch inside functions only, so that names can be checked without it. These files travel to the
worker; other packages add variants by entry point.
"""

from torchstone.records import NotSupported
from torchstone.variants.base import Applied, Variant
from torchstone.variants.compiled import unsupported_backend
from torchstone.variants.registry import (
    before_loading,
    check_variant,
    known_variants,
    resolve_variant,
    uses_torch,
    with_techniques,
)
from torchstone.variants.step import Prepared, prepare, reference_step

__all__ = [
    "Applied",
    "NotSupported",
    "Prepared",
    "Variant",
    "before_loading",
    "check_variant",
    "known_variants",
    "prepare",
    "reference_step",
    "resolve_variant",
    "unsupported_backend",
    "uses_torch",
    "with_techniques",
]
