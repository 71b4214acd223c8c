"""No test here may leave a process behind."""

from tests.targets.support import no_survivors  # noqa: F401
