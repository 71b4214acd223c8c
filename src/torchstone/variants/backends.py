"""Why a torch.compile backend did not run, where its failure says that it cannot run here.

A backend meets a missing package only when it compiles, and Dynamo wraps what it raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchstone.records import first_line

_FAILED, _UNKNOWN = "BackendCompilerFailed", "InvalidBackend"
_MISSING_ARGUMENT = re.compile(r"\w+\(\) missing \d+ required [\w-]+ arguments?: (.+)")


def unsupported_backend(error: BaseException) -> str | None:
    """The reason in words; None for a backend that broke, and for errors of the model's own."""
    chain = list(_chain(error))
    if any(type(one).__name__ == _UNKNOWN for one in chain):
        return first_line(error) or type(error).__name__
    failed = next((one for one in chain if type(one).__name__ == _FAILED), None)
    if failed is None:
        return None
    name = str(getattr(failed, "backend_name", "?"))
    inner = getattr(failed, "inner_exception", None)
    if isinstance(inner, TypeError):
        missing = _MISSING_ARGUMENT.match(str(inner))
        if missing and str(inner).startswith(f"{name}()"):
            return f"the backend {name} needs an argument that a name cannot give: {missing[1]}"
    return missing_package(name, chain)


def missing_package(backend: str, chain: list[BaseException]) -> str | None:
    """What the backend could not import. A library that is there but does not load is a fault."""
    imports = [one for one in chain if isinstance(one, ImportError) and one.path is None]
    for one in imports:
        if isinstance(one, ModuleNotFoundError) and one.name:
            package = one.name.split(".")[0]
            needs = f"the backend {backend} needs the package {package}"
            return None if package == "torch" else needs
    lines = [line for one in imports for line in str(one).splitlines()[:1]]
    return f"the backend {backend} cannot be imported: {lines[0]}" if lines else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that led to it, each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [getattr(one, "inner_exception", None), one.__cause__, one.__context__]
