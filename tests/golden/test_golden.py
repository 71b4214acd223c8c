"""What every command, page and export prints, kept in files: a change of a report shows as a diff.

`pytest tests/golden --renew-golden` writes the files again; read the diff before it is committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from starlette.testclient import TestClient

from tests.show import synthetic_comparison, synthetic_result, synthetic_run
from tests.show.reports import compare_markdown, compare_report, run_markdown, run_report
from tests.web.conftest import client_of, database  # noqa: F401  (a fixture)
from torchstone.cli.app import cli
from torchstone.show.markdown import dumps, markdown
from torchstone.show.run_data import compare_csv, compare_dumps, run_csv, run_dumps
from torchstone.show.terminal import report

FOLDER = Path(__file__).parent
RESULTS = ("two_faster", "four_with_failures", "cannot_tell", "statement", "no_samples", "hostile")
RUNS = ("small", "every_outcome", "mixed", "imported", "hostile", "nothing")
COMPARISONS = ("few", "every_kind", "across", "foreign", "nothing_changed")
ROUTES = (
    "/",
    "/suite?suite=huggingface",
    "/suite?suite=timm&variant=inductor&mode=training",
    "/case?suite=huggingface&model=BertForMaskedLM&mode=training&variant=inductor",
    "/compare",
    "/runs",
    "/failures",
    "/machines",
    "/profiles",
    "/runs/night05x",
)


def _terminal(made: Callable[..., str]) -> dict[str, Callable[[], str]]:
    """At three widths; the narrow one without Unicode, the wide one painted."""
    return {
        "txt": lambda: made(width=100),
        "narrow.txt": lambda: made(width=60, unicode=False),
        "wide.txt": lambda: made(width=160, color=True),
    }


def _results() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in RESULTS:
        made = getattr(synthetic_result, name)()
        ways = _terminal(lambda made=made, **how: report(made, **how))
        ways["brief.txt"] = lambda made=made: report(made, verbose=False)
        ways["md"] = lambda made=made: markdown(made)
        if name in ("two_faster", "four_with_failures"):
            ways["json"] = lambda made=made: dumps(made)
        yield from ((f"result-{name}.{ending}", way) for ending, way in ways.items())


def _runs() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in RUNS:
        view = getattr(synthetic_run, name)()
        of = synthetic_run.summaries(view)
        ways = _terminal(lambda view=view, of=of, **how: run_report(view, of, **how))
        ways["commands.txt"] = lambda view=view, of=of: run_report(
            view, of, commands=True, db="a folder/x.db"
        )
        ways["md"] = lambda view=view, of=of: run_markdown(view, of)
        ways["csv"] = lambda view=view: run_csv(view)
        ways["json"] = lambda view=view, of=of: run_dumps(view, of)
        yield from ((f"run-{name}.{ending}", way) for ending, way in ways.items())


def _comparisons() -> Iterator[tuple[str, Callable[[], str]]]:
    for name in COMPARISONS:
        made = getattr(synthetic_comparison, name)()
        ways = _terminal(lambda made=made, **how: compare_report(made, **how))
        ways["everything.txt"] = lambda made=made: compare_report(made, everything=True)
        ways["md"] = lambda made=made: compare_markdown(made)
        ways["csv"] = lambda made=made: compare_csv(made)
        if name != "across":
            ways["json"] = lambda made=made: compare_dumps(made)
        yield from ((f"compare-{name}.{ending}", way) for ending, way in ways.items())


def _helps(
    command: click.Command, path: tuple[str, ...] = (), parent: click.Context | None = None
) -> Iterator[tuple[str, Callable[[], str]]]:
    context = command.make_context(
        path[-1] if path else "torchstone", ["--help"], parent, resilient_parsing=True
    )
    context.terminal_width = 100
    yield f"help-{'-'.join(path) or 'torchstone'}.txt", lambda: command.get_help(context) + "\n"
    if isinstance(command, click.Group):
        for one in command.list_commands(context):
            found = command.get_command(context, one)
            assert found is not None
            yield from _helps(found, (*path, one), context)


REPORTS = dict([*_results(), *_runs(), *_comparisons(), *_helps(cli)])


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_what_it_was(name: str, request: pytest.FixtureRequest) -> None:
    _check(name, REPORTS[name](), request)


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[TestClient]:  # noqa: F811
    with client_of(database) as made:
        yield made


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_is_what_it_was(
    route: str, client: TestClient, request: pytest.FixtureRequest
) -> None:
    """Its data, as the API gives them, and the words that the page has for people."""
    path, _, query = route.partition("?")
    name = path.strip("/") or "landing"
    answer = client.get(f"/api/v1/{name}?{query + '&' if query else ''}range=all")
    assert answer.status_code == 200, answer.text
    text = json.dumps(answer.json(), indent=1, ensure_ascii=False) + "\n"
    file = "-".join(["page", *name.split("/"), *re.findall(r"=(\w+)", query)])
    _check(f"{file}.json", text, request)


def _check(name: str, text: str, request: pytest.FixtureRequest) -> None:
    file = FOLDER / name
    if request.config.getoption("--renew-golden"):
        file.write_text(text, "utf-8", newline="")
    with file.open(encoding="utf-8", newline="") as opened:
        assert text == opened.read(), f"pytest tests/golden --renew-golden rewrites {name}"


def test_every_file_has_its_report() -> None:
    """A file that nothing writes any more would say what no longer is."""
    kept = {one.name for one in FOLDER.iterdir() if one.suffix != ".py" and one.is_file()}
    pages = {one for one in kept if one.startswith("page-")}
    assert kept - pages == set(REPORTS)
    assert len(pages) == len(ROUTES)
