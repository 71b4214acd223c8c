"""Records: frozen, versioned dataclasses and their JSON.

Holds: what other packages exchange (arms, contracts, environments, measurements,
comparisons, checks, results). Touches: nothing but the standard library, because these
files travel to the worker, which may live in another interpreter.
"""

# Every public name of these modules can be imported from here.
# mypy: implicit-reexport
# ruff: noqa: F403

from torchstone.records.codec import *
from torchstone.records.errors import *
from torchstone.records.ledger import *
from torchstone.records.measurement import *
from torchstone.records.profile import *
from torchstone.records.result import *
from torchstone.records.run import *
from torchstone.records.tracking import *
from torchstone.records.tuning import *
