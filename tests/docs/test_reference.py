"""The reference says everything there is to say, and nothing that is not there."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.docs.pages import ROOT
from torchstone import interop, profile
from torchstone.explain.findings.base import FINDINGS
from torchstone.lab.engines import ENGINES
from torchstone.machine.doctor import CHECKUPS
from torchstone.measure.flops import FORMULAS
from torchstone.monitor.sinks import SINKS
from torchstone.profile.probes import PROBES
from torchstone.validate import RULES
from torchstone.variants.registry import VARIANTS
from torchstone.variants.techniques import REGISTRY as TECHNIQUES
from torchstone.workloads.suites import SUITES

REFERENCE = ROOT / "docs" / "reference"
PLAIN = (
    "mode",
    "precision",
    "device",
    "threads",
    "seed",
    "limit",
    "form",
    "format_name",
    "unit",
    "port",
)
"""Their values and default in the help say all."""


def text_of(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """The text under each second-level heading."""
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    return {title.strip("`"): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def all_commands() -> list[tuple[str, click.Command]]:
    from torchstone.cli.app import cli

    return list(commands(cli, "torchstone"))


def options(command: click.Command) -> Iterator[click.Option]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
            yield parameter


def listed(body: str) -> set[str]:
    """The options that a section names; `--name VALUE` is one."""
    return set(re.findall(r"`(--?[a-z][a-z-]*)[` ]", body))


@pytest.mark.parametrize(("name", "command"), all_commands(), ids=str)
def test_every_option_of_a_command_is_listed(name: str, command: click.Command) -> None:
    pages = sections(text_of("cli.md"))
    own, shared = listed(pages[name]), listed(pages["Shared options"])
    known = {word for o in options(command) for word in (*o.opts, *o.secondary_opts)}
    assert known - own - shared == set(), f"{name}: options that the page does not list"
    # A section may point at another command's option: `--csv` of `show`.
    words = {word for _, one in all_commands() for o in options(one) for word in o.opts}
    assert own - known - words == set(), f"{name} has no such option"


def test_the_help_explains_every_option_that_the_page_only_lists() -> None:
    mute = [
        f"{name} {option.opts[0]}"
        for name, command in all_commands()
        for option in options(command)
        if not option.help and option.name not in PLAIN
    ]
    assert mute == []


def test_every_shared_option_is_shared() -> None:
    taken = [
        {*o.opts, *o.secondary_opts} for _, command in all_commands() for o in options(command)
    ]
    shared = listed(sections(text_of("cli.md"))["Shared options"])
    assert [word for word in shared if sum(word in one for one in taken) < 2] == []


def test_every_command_has_a_section_and_nothing_else_has_one() -> None:
    written = {title for title in sections(text_of("cli.md")) if title.startswith("torchstone ")}
    assert written == {name for name, _ in all_commands()}


@pytest.mark.parametrize("name", ["bench", "compare", "timeit", "tune"])
def test_every_parameter_of_the_api_is_documented(name: str) -> None:
    import torchstone

    body = sections(text_of("python.md"))[f"torchstone.{name}"].replace('"', "'")
    for parameter in inspect.signature(getattr(torchstone, name)).parameters.values():
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        assert re.search(rf"\b{parameter.name}{re.escape(default)}[,)\n`]", body), parameter


def test_every_field_of_a_workload_is_documented() -> None:
    import dataclasses

    from torchstone import Workload

    body = sections(text_of("python.md"))["torchstone.Workload"]
    assert [f.name for f in dataclasses.fields(Workload) if f"- `{f.name}`" not in body] == []


def test_everything_the_front_door_offers_is_documented() -> None:
    import torchstone

    titles = sections(text_of("python.md"))
    offered = [name for name in torchstone.__all__ if name != "__version__"]
    assert [name for name in offered if f"torchstone.{name}" not in titles] == []


def test_every_parameter_of_the_fixture_is_documented() -> None:
    from torchstone.lab.pytest_plugin import DOUBTS, SpeedAssertions

    text = text_of("pytest.md")
    public = [name for name in vars(SpeedAssertions) if not name.startswith("_")]
    for name in public:
        assert f"torchstone.{name}" in text
        for parameter in list(inspect.signature(getattr(SpeedAssertions, name)).parameters)[1:]:
            assert parameter in text, parameter
    assert [doubt for doubt in DOUBTS if f'`"{doubt}"`' not in text] == []


def test_every_key_of_a_contract_file_is_documented() -> None:
    import dataclasses

    from torchstone.conductor.run import BOUNDARY_CASES
    from torchstone.lab import contracts
    from torchstone.records import Contract, Leaf

    text = text_of("contract.md")
    tree = ast.parse(inspect.getsource(contracts.write_contract))
    written = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = [key.value for key in written[0].keys if isinstance(key, ast.Constant)]
    assert "boundary" in keys
    fields = [f.name for record in (Contract, Leaf) for f in dataclasses.fields(record)]
    for key in (*map(str, keys), *fields, *BOUNDARY_CASES):
        assert f"`{key}`" in text, key


@pytest.mark.parametrize("title", ["A roofline", "A ledger", "A tuning"])
def test_every_key_of_an_explanation_is_documented(title: str) -> None:
    import dataclasses

    from torchstone.explain import Ceiling, Point, Roofline
    from torchstone.records import ledger, tuning
    from torchstone.stats.roofline import Utilisation

    kinds: tuple[type, ...] = (Roofline, Ceiling, Point, Utilisation)
    if title == "A ledger":
        found = [one for one in vars(ledger).values() if isinstance(one, type)]
        kinds = tuple(one for one in found if one.__module__ == ledger.__name__)
    if title == "A tuning":
        kinds = (tuning.Tuning, tuning.Experiment)
    body = sections(text_of("json.md"))[title]
    names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert [name for name in sorted(names) if f"`{name}`" not in body] == []


def anchor_of(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {anchor_of(heading) for heading in headings}


def test_links_into_pages_meet_a_heading() -> None:
    broken = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)\s:]*#[^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if anchor not in anchors(page.parent / path if path else page):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_every_group_of_plug_ins_is_documented() -> None:
    registries = [interop.FORMATS, profile.FORMATS, PROBES, SUITES]
    registries += [VARIANTS, TECHNIQUES, RULES, CHECKUPS, FINDINGS, FORMULAS, SINKS, ENGINES]
    titles = sections(text_of("plugins.md"))
    assert [one.group for one in registries if one.group not in titles] == []
