"""`torchstone contract write` and `torchstone contract check`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.lab.contracts import Finding
    from torchstone.lab.request import BenchRequest

_shared = opt.options(
    click.argument("target"),
    click.argument("file", type=click.Path(dir_okay=False)),
    opt.option("--vs", multiple=True, metavar="VARIANT", help="Also under this variant."),
    opt.option("--mode", metavar=opt.MODES, help="Default: inference, or what the contract says."),
    opt.option("--precision", help="Default: fp32, or what the contract says."),
    opt.device_option,
    opt.option("--threads", type=int),
    opt.option("--seed", type=int, help="Default: 0, or what the contract says."),
    opt.json_flag,
)


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


@contract.command()
@_shared
def write(target: str, file: str, output: opt.Output, **asked: Any) -> int:
    """Inspect TARGET on the CPU and write its contract to FILE.

    Exit code 1 if a variant of --vs did not run or was wrong; FILE is then without it.
    """
    from torchstone.lab.contracts import write_contract
    from torchstone.show.table import sanitise

    with opt.progress() as events:
        written = write_contract(_request(target, asked), file, events)
    opt.deliver_lines(output, _lines(written.document, file), lambda: written.document)
    for variant, reason in written.left_out.items():
        click.echo(sanitise(f"{variant} is not in {file}: {reason}"), err=True)
    return opt.Exit.FAILED if written.left_out else opt.Exit.OK


@contract.command()
@_shared
def check(target: str, file: str, output: opt.Output, **asked: Any) -> int:
    """Hold TARGET, and its variants, to the contract in FILE; exit code 1 if it is broken."""
    from torchstone.lab.contracts import HOME, check_contract, read_contract

    written = read_contract(file)  # before time is spent
    for name in ("mode", "precision", "seed"):
        if asked[name] is None:
            asked[name] = written[name]
    device = asked["device"]
    if device != HOME:
        # The promise is the CPU's; the accelerator is held to it by one more arm of every variant.
        arms = [("eager", device), *((name, f"{name} {device}") for name in asked["vs"])]
        asked["arms"] = tuple(
            shlex.join((f"name={name}", f"variant={variant}", f"device={device}"))
            for variant, name in arms
        )
        asked["device"] = HOME
    with opt.progress() as events:
        findings = check_contract(_request(target, asked), file, events)
    broken = [finding for finding in findings if not finding.ok]
    lines = [
        f"{finding.arm}: {finding.subject}: {finding.message}"
        for finding in findings
        if not finding.ok or finding.subject == "outcome"
    ]
    lines.append(f"{len(findings) - len(broken)} kept, {len(broken)} broken")
    opt.deliver_lines(output, lines, lambda: _document(findings))
    return opt.Exit.FAILED if broken else opt.Exit.OK


def _request(target: str, asked: dict[str, Any]) -> BenchRequest:
    from torchstone.conductor import Settings
    from torchstone.lab.request import BenchRequest

    settings = Settings(seed=asked.pop("seed") or 0)
    asked["mode"] = asked["mode"] or "inference"
    asked["precision"] = asked["precision"] or "fp32"
    return BenchRequest(targets=(target,), settings=settings, **asked)


def _lines(document: dict[str, Any], file: str) -> list[str]:
    from torchstone.records import Contract, describe_leaf, from_data

    made = from_data(Contract, document["contract"])
    lines = [f"  {leaf.path}  {describe_leaf(leaf)}" for leaf in (*made.inputs, *made.outputs)]
    lines.append(f"  {made.parameters} parameters, weights {made.weights_hash or '-'}")
    for variant, cases in document["boundary"].items():
        lines += [f"  {variant}, {case}: {behaviour}" for case, behaviour in cases.items()]
    return [*lines, f"written to {file}"]


def _document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The shape of every command's JSON: each finding is a check."""
    checks: list[dict[str, Any]] = [
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
