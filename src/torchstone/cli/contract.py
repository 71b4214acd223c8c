"""`torchstone contract write` and `torchstone contract check`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import click

from torchstone.cli.options import progress


def _options(function: Any) -> Any:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--seed", type=int, help="Default: 0, or what the contract says."),
        click.option("--threads", type=int),
        click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|..."),
        click.option("--precision", help="Default: fp32, or what the contract says."),
        click.option(
            "--mode",
            metavar="inference|training",
            help="Default: inference, or what the contract says.",
        ),
        click.option("--vs", multiple=True, metavar="VARIANT", help="Also under this variant."),
    ):
        function = option(function)
    return function


@click.group()
def contract() -> None:
    """Record a target's input/output contract; verify it later.

    A contract has the form of every input and output, the state, the modes, and what happens with
    boundary inputs: a batch of one, an empty batch, non-contiguous, wrong dtype, wrong device.

    \b
    Examples:
      torchstone contract write model.py:make model.contract.json
      torchstone contract check model.py:make model.contract.json --vs inductor
    """


def _request(target: str, asked: dict[str, Any]) -> Any:
    from torchstone.conductor import Settings
    from torchstone.lab.request import BenchRequest

    settings = Settings(seed=asked.pop("seed") or 0)
    asked["mode"] = asked["mode"] or "inference"
    asked["precision"] = asked["precision"] or "fp32"
    return BenchRequest(targets=(target,), settings=settings, **asked)


@contract.command()
@click.argument("target")
@click.argument("file", type=click.Path(dir_okay=False))
@_options
def write(target: str, file: str, as_json: bool, **asked: Any) -> int:
    """Inspect TARGET on the CPU and write its contract to FILE.

    Exit code 1 if a variant of --vs did not run or was wrong; FILE is then without it.
    """
    from torchstone.lab.contracts import write_contract
    from torchstone.show import sanitise

    with progress() as events:
        written = write_contract(_request(target, asked), file, events)
    lines = [json.dumps(written.document, indent=2)] if as_json else _lines(written.document, file)
    for line in lines:
        click.echo(line if as_json else sanitise(line))
    for variant, reason in written.left_out.items():
        click.echo(sanitise(f"{variant} is not in {file}: {reason}"), err=True)
    return int(bool(written.left_out))


def _lines(document: dict[str, Any], file: str) -> list[str]:
    from torchstone.records import Contract, describe_leaf, from_data

    made = from_data(Contract, document["contract"])
    lines = [f"  {leaf.path}  {describe_leaf(leaf)}" for leaf in (*made.inputs, *made.outputs)]
    lines.append(f"  {made.parameters} parameters, weights {made.weights_hash or '-'}")
    for variant, cases in document["boundary"].items():
        lines += [f"  {variant}, {case}: {behaviour}" for case, behaviour in cases.items()]
    return [*lines, f"written to {file}"]


@contract.command()
@click.argument("target")
@click.argument("file", type=click.Path(dir_okay=False))
@_options
def check(target: str, file: str, as_json: bool, **asked: Any) -> int:
    """Hold TARGET, and its variants, to the contract in FILE; exit code 1 if it is broken."""
    from torchstone.lab.contracts import HOME, check_contract, read_contract
    from torchstone.show import sanitise

    written = read_contract(file)  # before time is spent
    for name in ("mode", "precision", "seed"):
        if asked[name] is None:
            asked[name] = written[name]
    device = asked["device"]
    if device != HOME:
        # The promise is the CPU's; the accelerator is held to it by one more arm of every variant.
        asked["arms"] = tuple(
            shlex.join((f"name={name}", f"variant={variant}", f"device={device}"))
            for variant, name in _on(device, asked["vs"])
        )
        asked["device"] = HOME
    with progress() as events:
        findings = check_contract(_request(target, asked), file, events)
    broken = [finding for finding in findings if not finding.ok]
    if as_json:
        click.echo(json.dumps(_document(findings), indent=2))
    else:
        for finding in findings:
            if finding.ok and finding.subject != "outcome":
                continue
            click.echo(sanitise(f"{finding.arm}: {finding.subject}: {finding.message}"))
        kept = len(findings) - len(broken)
        click.echo(f"{kept} kept, {len(broken)} broken")
    return int(bool(broken))


def _on(device: str, variants: Sequence[str]) -> list[tuple[str, str]]:
    """Every variant, and what its arm on that device is called."""
    return [("eager", device), *((variant, f"{variant} {device}") for variant in variants)]


def _document(findings: Any) -> dict[str, Any]:
    """The shape of every command's JSON: each finding is a check."""
    checks = [
        {
            "rule": f"contract: {finding.subject}",
            "level": "ok" if finding.ok else "fail",
            "message": finding.message,
            "figures": {},
            "arms": [finding.arm],
        }
        for finding in findings
    ]
    return {"schema": 1, "arms": [], "comparisons": [], "checks": checks}
