"""A target whose library is not there."""

import a_package_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401


def make() -> None:
    raise AssertionError("never reached")
