"""A pytest fixture for speed: `torchstone.assert_not_slower(new, base, margin=0.03)`.

Each comparison is a line of a table at the end of the session. `--torchstone-save` stores them, and
`assert_no_regression` compares with what the same test last stored on this machine.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchstone.lab.api import BenchResult
    from torchstone.records import Comparison, Result

DOUBTS = ("warn", "fail", "pass")
BUDGET_S = 5.0
"""For turns. A test ends sooner where the margin is decided, which takes three processes."""
MARGIN = 0.03
"""Of `assert_not_slower`. Forked processes share where libraries lie, which moves short steps by a
per cent or two: a smaller margin wants processes of their own."""
LINES = pytest.StashKey[list["Line"]]()
LABEL = "pytest "
"""How the label of a stored comparison begins; the test's id follows."""


class TorchstoneWarning(UserWarning):
    """The data could not tell; the test neither proves nor denies."""


@dataclass(frozen=True)
class Line:
    """One comparison, for the table at the end."""

    test: str
    what: str
    ratio: str
    verdict: str
    took_s: float


class SpeedAssertions:
    """What the `torchstone` fixture offers. Targets are functions, modules with inputs, strings."""

    def __init__(self, request: pytest.FixtureRequest | None = None) -> None:
        self._request = request

    def compare(self, base: Any, new: Any, **options: Any) -> BenchResult:
        """Measure both; returns the whole result. It ends as soon as it is decided whether `new` is
        slower by more than the margin, or when the budget is spent."""
        from torchstone.lab.api import compare

        began = time.monotonic()
        options.setdefault("until", "decided")
        result = compare(base, new, **self._storing(_soon(options)))
        self._note(result, time.monotonic() - began)
        return result

    def bench(self, *targets: Any, **options: Any) -> BenchResult:
        """Measure without asserting anything."""
        from torchstone.lab.api import bench

        began = time.monotonic()
        result = bench(*targets, **self._storing(_soon(options)))
        self._note(result, time.monotonic() - began)
        return result

    def assert_not_slower(
        self, new: Any, base: Any, margin: float = MARGIN, on_doubt: str = "warn", **options: Any
    ) -> Result:
        """Fail if `new` is proven slower than `base` by more than `margin`, or does not work.

        Verdicts that exclude it (`faster`, `same`, `not slower`) pass, and so does a slow-down all
        of whose interval lies within the margin. Otherwise nothing is proven: `on_doubt` says
        whether to `warn`, `fail` or `pass`.
        """
        __tracebackhide__ = True
        _check_doubt(on_doubt)
        result = self.compare(base, new, margin=margin, **options)
        _need_outcomes(result)
        _hold(result.comparisons[0], margin, on_doubt)
        return result

    def assert_no_regression(
        self, *targets: Any, margin: float = 0.10, on_doubt: str = "warn", **options: Any
    ) -> Result:
        """Fail if the target is proven slower than this test's stored baseline of this machine.

        The baseline is the newest result that `--torchstone-save` stored of this test on a machine
        like this one. Sessions differ by more than processes do, so the margin is wider. Without a
        baseline the test is skipped.
        """
        __tracebackhide__ = True
        _check_doubt(on_doubt)
        stored = self._stored(options)
        result = self.bench(*targets, margin=margin, **options)
        _need_outcomes(result)
        if stored is None:
            pytest.skip("no stored baseline of this test on this machine: run --torchstone-save")
        _hold(_between(stored, result, margin), margin, on_doubt)
        return result

    def _option(self, name: str) -> Any:
        return self._request.config.getoption(name) if self._request is not None else None

    @property
    def _label(self) -> str:
        return f"{LABEL}{id_of_test(self._request)}" if self._request is not None else ""

    def _storing(self, options: dict[str, Any]) -> dict[str, Any]:
        """With the label of the test, and stored where the command line asks for it."""
        options.setdefault("label", self._label)
        options.setdefault("save", bool(self._option("torchstone_save")))
        if self._option("torchstone_db"):
            options.setdefault("db", self._option("torchstone_db"))
        return options

    def _stored(self, options: dict[str, Any]) -> Result | None:
        """The newest result with this test's label that was measured on this machine."""
        from torchstone.lab.recording import Recorder, this_machine

        recorder, machine = Recorder(self._storing(dict(options)).get("db")), this_machine()

        def newest(store: Any) -> Result | None:
            for one in store.list(label=self._label):
                found: Result = store.load(one.id)
                environment = found.arms[0].environment
                if environment is not None and environment.machine_id == machine:
                    return found
            return None

        return recorder.read(newest)

    def _note(self, result: BenchResult, took_s: float) -> None:
        if self._request is None:
            return
        lines = self._request.config.stash.setdefault(LINES, [])
        for arm in result.arms[1:] or result.arms:
            compared = arm.comparison
            ratio = _ratio_words(compared) if compared else ""
            verdict = arm.outcome.words if arm.outcome.value != "ok" else ""
            told = compared.verdict.value if compared else ""
            what = f"{compared.new} / {compared.base}" if compared else arm.name
            lines.append(Line(self._request.node.nodeid, what, ratio, verdict or told, took_s))


def id_of_test(request: pytest.FixtureRequest) -> str:
    """`tests/test_a.py::test_b`, by the folder of pytest's settings or of the command: pytest's own
    root may be another one where an option names a path."""
    config, name = request.config, request.node.nodeid.partition("::")[2]
    base = config.inipath.parent if config.inipath else config.invocation_params.dir
    if not request.node.path.is_relative_to(base):
        return str(request.node.nodeid)
    return f"{request.node.path.relative_to(base).as_posix()}::{name}"


def _soon(options: dict[str, Any]) -> dict[str, Any]:
    """With the defaults of a test suite: as `--fast` does it, down to the usual precision, unless
    the margin is small."""
    options.setdefault("budget", BUDGET_S)
    if "effort" not in options and options.get("margin", MARGIN) >= MARGIN:
        options.update(effort="fast")
        options.setdefault("within", 0.01)
        options.setdefault("margin", 0.02)
    return options


def _check_doubt(on_doubt: str) -> None:
    if on_doubt not in DOUBTS:
        raise ValueError(f"on_doubt is one of {', '.join(DOUBTS)}, not {on_doubt!r}")


def _need_outcomes(result: Result) -> None:
    __tracebackhide__ = True
    for arm in result.arms:
        if arm.outcome.value != "ok":
            detail = arm.detail
            said = f"{arm.arm.name}: {arm.outcome.value}: {detail.message}"
            pytest.fail(f"{said}\n{detail.remedy}" if detail.remedy else said)


def _hold(comparison: Comparison, margin: float, on_doubt: str) -> None:
    """Fail, warn or pass by where the interval lies."""
    __tracebackhide__ = True
    interval = comparison.interval
    if interval is None:
        pytest.fail(f"no comparison: {comparison.reason}")
    verdict, slower = comparison.verdict, comparison.verdict.value == "slower"
    if slower and interval[0] > 1 + margin:
        pytest.fail(f"{_words(comparison)}: slower by more than {margin:.1%}")
    if not (verdict.excludes_slower or (slower and interval[1] <= 1 + margin)):
        doubt = f"{_words(comparison)}: {_doubt(comparison)}"
        if on_doubt == "fail":
            pytest.fail(doubt)
        if on_doubt == "warn":
            warnings.warn(TorchstoneWarning(doubt), stacklevel=3)


def _between(stored: Result, new: Result, margin: float) -> Comparison:
    """The last arm then and now, each over all processes of its session."""
    from dataclasses import replace

    from torchstone.stats import compare_sessions
    from torchstone.track.compare import DEFAULT_AA_FLOOR

    then, now = stored.arms[-1], new.arms[-1]
    then = replace(then, arm=replace(then.arm, name=f"stored {stored.id}"))
    now = replace(now, arm=replace(now.arm, name="now"))
    return compare_sessions(
        then, now, margin=margin, alpha=new.method.alpha, aa_floor=DEFAULT_AA_FLOOR
    )


def _doubt(comparison: Comparison) -> str:
    """What is open, and what would help."""
    from torchstone.show.evidence import budget_advice

    verdict, margin = comparison.verdict.value, comparison.margin
    known = "" if verdict == "cannot tell" else f"{verdict}, but "
    said = f"{known}cannot tell whether that is more than {margin:.1%}"
    advice = budget_advice(comparison.deciding_budget_s, margin, "budget=")
    return f"{said}. {advice}" if advice else said


def _words(comparison: Comparison) -> str:
    ratio, (low, high) = comparison.time_ratio or 0.0, comparison.interval or (0.0, 0.0)
    return (
        f"{comparison.new} takes {ratio:.3f}x the time of {comparison.base} [{low:.3f}, {high:.3f}]"
    )


def _ratio_words(comparison: Comparison) -> str:
    ratio, interval = comparison.time_ratio, comparison.interval
    if ratio is None or interval is None:
        return ""
    return f"{ratio:.3f}x the time [{interval[0]:.3f}, {interval[1]:.3f}]"


@pytest.fixture
def torchstone(request: pytest.FixtureRequest) -> SpeedAssertions:
    """Assertions about speed, measured in fresh processes of their own, objects in this one."""
    return SpeedAssertions(request)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where results go."""
    group = parser.getgroup("torchstone")
    group.addoption(
        "--torchstone-save",
        action="store_true",
        help="Store what the torchstone fixture measures; the next runs' baselines.",
    )
    group.addoption("--torchstone-db", metavar="PATH", help="Database of results and baselines.")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line a comparison."""
    lines = config.stash.get(LINES, [])
    if not lines:
        return
    terminalreporter.section("torchstone")
    widths = [max(len(getattr(one, name)) for one in lines) for name in ("test", "what", "ratio")]
    for one in lines:
        cells = (one.test, one.what, one.ratio)
        shown = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        terminalreporter.write_line(f"{shown}  {one.verdict or '-'}  {one.took_s:.1f} s".rstrip())
