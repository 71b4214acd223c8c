"""A backend that cannot run here says what it lacks; one that breaks stays an error."""

from __future__ import annotations

from typing import Any

import pytest

from torchstone.variants import unsupported_backend
from torchstone.variants.compiled import missing_package


class BackendCompilerFailed(Exception):
    """As Dynamo raises it."""

    def __init__(self, name: str, inner: BaseException) -> None:
        super().__init__(f"backend={name!r} raised:\n{type(inner).__name__}: {inner}")
        self.backend_name, self.inner_exception = name, inner


def _import_error(message: str, cause: BaseException | None = None, **more: Any) -> ImportError:
    error = ImportError(message, **more)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (ModuleNotFoundError("No module named 'tvm'", name="tvm"), "needs the package tvm"),
        (
            _import_error("Please install it", ModuleNotFoundError("No", name="torch_xla.core")),
            "needs the package torch_xla",
        ),
        (_import_error("too old\nby far"), "cannot be imported: too old"),
        (TypeError("b() missing 1 required positional argument: 'mode'"), "a name cannot give"),
    ],
)
def test_what_a_backend_lacks_is_named(inner: BaseException, reason: str) -> None:
    found = unsupported_backend(BackendCompilerFailed("b", inner))
    assert found is not None
    assert found.startswith("the backend b ")
    assert reason in found


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'lxml'", name="lxml"),  # the model's own
        BackendCompilerFailed("b", RuntimeError("method cannot be used as a value")),
        BackendCompilerFailed("b", TypeError("forward() missing 1 required argument: 'x'")),
        BackendCompilerFailed("b", ImportError("undefined symbol: f", path="/cache/kernel.so")),
        BackendCompilerFailed("b", ModuleNotFoundError("No", name="torch._gone")),
        ValueError("no"),
    ],
    ids=str,
)
def test_what_breaks_stays_an_error(error: BaseException) -> None:
    assert unsupported_backend(error) is None


def test_a_chain_that_goes_round_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert unsupported_backend(one) is None
    assert missing_package("b", [one, two]) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("backend", "package"), [("tvm", "tvm"), ("openxla", "torch_xla")])
def test_dynamo_still_wraps_as_we_think(backend: str, package: str) -> None:
    torch: Any = pytest.importorskip("torch")
    if package in __import__("sys").modules or __import__("importlib.util").util.find_spec(package):
        pytest.skip(f"{package} is installed")
    torch._dynamo.reset()
    with pytest.raises(Exception, match=backend) as caught:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert unsupported_backend(caught.value) == f"the backend {backend} needs the package {package}"


@pytest.mark.filterwarnings("ignore")
def test_an_unknown_backend_is_not_supported() -> None:
    torch: Any = pytest.importorskip("torch")
    with pytest.raises(Exception, match="Invalid backend") as caught:
        torch.compile(lambda x: x + 1, backend="nobody")(torch.ones(2))
    reason = unsupported_backend(caught.value)
    assert reason is not None
    assert "nobody" in reason


class InvalidBackend(Exception):
    """As Dynamo raises it for a name it does not know."""


@pytest.mark.parametrize(("said", "reason"), [("no b\nhere", "no b"), ("", "InvalidBackend")])
def test_a_backend_that_nobody_knows_is_named_also_without_a_message(
    said: str, reason: str
) -> None:
    assert unsupported_backend(InvalidBackend(said)) == reason
