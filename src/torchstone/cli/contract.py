"""`torchstone contract write` and `torchstone contract check`."""

from __future__ import annotations

import json
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
    """Write down what a target promises; check it later.

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
def write(target: str, file: str, as_json: bool, **asked: Any) -> None:
    """Inspect TARGET and write its contract to FILE."""
    from torchstone.lab.contracts import write_contract
    from torchstone.records import Contract, describe_leaf, from_data

    with progress() as events:
        document = write_contract(_request(target, asked), file, events)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    made = from_data(Contract, document["contract"])
    for leaf in (*made.inputs, *made.outputs):
        click.echo(f"  {leaf.path}  {describe_leaf(leaf)}")
    click.echo(f"  {made.parameters} parameters, weights {made.weights_hash or '-'}")
    for variant, cases in document["boundary"].items():
        for case, behaviour in cases.items():
            click.echo(f"  {variant}, {case}: {behaviour}")
    click.echo(f"written to {file}")


@contract.command()
@click.argument("target")
@click.argument("file", type=click.Path(dir_okay=False))
@_options
def check(target: str, file: str, as_json: bool, **asked: Any) -> int:
    """Hold TARGET, and its variants, to the contract in FILE; exit code 1 if it is broken."""
    from torchstone.lab.contracts import check_contract, read_contract
    from torchstone.show import sanitise

    written = read_contract(file)  # before time is spent
    for name in ("mode", "precision", "seed"):
        if asked[name] is None:
            asked[name] = written[name]
    device = asked["device"]
    if device != "cpu":
        # The promise is the CPU's; the accelerator is held to it as one more arm.
        asked["arms"] = (f"name={device} device={device}",)
        asked["device"] = "cpu"
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
