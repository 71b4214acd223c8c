"""`torchstone profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import (
    Duration,
    allocator_option,
    arm_options,
    check_json_path,
    database_option,
    json_option,
    progress,
)
from torchstone.cli.unkept import tell_troubles

if TYPE_CHECKING:
    from torchstone.lab.keeping import Keeper
    from torchstone.lab.profile import ProfileRequest
    from torchstone.records import Profile

WAYS = "count|sample|trace|memory|all"


class ProfileCommand(click.Command):
    """Options of a target may come after it, as elsewhere; what follows a program is its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set what follows the program apart before click sees it."""
        from torchstone.lab.profile import is_target

        place = self._first_positional(args)
        if place >= len(args):
            return super().parse_args(ctx, args)
        module = args[place] == "-m"
        ours, rest = args[:place], args[place + module :]
        if not module and is_target(rest[0]):
            return super().parse_args(ctx, [*ours, *rest[1:], "--", rest[0]])
        return super().parse_args(ctx, [*ours, *(["-m"] if module else []), "--", *rest])

    def _first_positional(self, args: list[str]) -> int:
        """Where the program is named: the first word that is neither an option nor its value."""
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in (*option.opts, *option.secondary_opts)
        }
        place = 0
        while place < len(args):
            word = args[place]
            if word == "--":
                return place + 1
            if word == "-m" or not word.startswith("-"):
                return place
            place += 2 if word in takes_value else 1
        return place


@click.command(cls=ProfileCommand)
@click.argument("what", metavar="TARGET|SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@click.option("-m", "--module", is_flag=True, help="Run a module, as `python -m` does.")
@click.option(
    "--how",
    default="sample",
    show_default=True,
    metavar=WAYS,
    help="In which way; all: the first three side by side.",
)
@click.option("--out", metavar="FILE", help="Write the profile; the ending says the format.")
@click.option("--format", metavar="NAME", help="Write --out in this format, whatever its ending.")
@click.option("--view", is_flag=True, help="Write an HTML page to look at it.")
@click.option("--steps", type=int, help="Steps of a target to profile (default: by time).")
@click.option(
    "--rate", type=float, default=100.0, show_default=True, metavar="HZ", help="Samples a second."
)
@click.option(
    "--clock",
    default="wall",
    show_default=True,
    metavar="wall|cpu|gil",
    help="What samples measure: time, CPU time, or holding the GIL.",
)
@click.option("--native", is_flag=True, help="Samples show native functions too (py-spy).")
@click.option(
    "--functions", multiple=True, metavar="NAME", help="Look at these line by line (memory)."
)
@arm_options
@allocator_option
@click.option("--variant", default="eager", show_default=True, help="How a target is run.")
@click.option("--vs", multiple=True, metavar="VARIANT", help="Profile this variant as well.")
@click.option("--timeout", type=Duration(), default="60s", show_default=True, help="For a step.")
@click.option(
    "--cost/--no-cost",
    default=None,
    help="Measure what profiling costs (default: of a target; a program is run again for it).",
)
@database_option
@json_option
@click.option("--save/--no-save", default=True, show_default=True, help="Keep the profile.")
def profile(
    what: str,
    out: str | None,
    format: str | None,
    view: bool,
    rate: float,
    clock: str,
    native: bool,
    functions: tuple[str, ...],
    timeout: float,
    json_path: str | None,
    db: str | None,
    save: bool,
    **asked: Any,
) -> int:
    """Say where the time or the memory of a step, or of a program, goes.

    The steady step of a TARGET is profiled in a process of its own, after warm-up. A SCRIPT or a
    module is run as Python runs it; what follows it is its own, so give options before it.

    \b
    Examples:
      torchstone profile model.py:make
      torchstone profile model.py:make --how trace --mode training --out step.trace.json
      torchstone profile model.py:make --how all --view
      torchstone profile --how count --out train.prof train.py --epochs 1
      torchstone profile --how memory --functions load -m mypackage.prepare
    """
    from torchstone.cli.profile_output import check_out, deliver_profiles, page_of
    from torchstone.lab.keeping import Keeper
    from torchstone.lab.profile import ProfileRequest
    from torchstone.profile.probes import ProbeOptions

    check_json_path(json_path)
    check_out(out, format)
    options = ProbeOptions(rate_hz=rate, clock=clock, native=native, functions=tuple(functions))
    request = ProfileRequest(what, options=options, timeout_s=timeout, **asked)
    keeper = Keeper(db) if save else None
    if keeper is not None:
        keeper.check()
    found, code = _profiled(request, keeper)
    page = page_of(found[0]) if view else None
    deliver_profiles(found, out, format, page, json_path, keeper.ids_kept if keeper else ())
    return tell_troubles(keeper, code)


def _profiled(request: ProfileRequest, keeper: Keeper | None) -> tuple[tuple[Profile, ...], int]:
    """The profiles, kept, and the exit code: a program's own."""
    from torchstone.lab.profile import profile_target
    from torchstone.lab.profile_script import profile_script

    def keep(one: Profile) -> None:
        if keeper is not None:
            with keeper.forgiving("The profile was not kept"):
                keeper.save_profile(one)
                keeper.ids_kept.append(one.id)

    try:
        if not request.is_target:
            run = profile_script(request, progress, keep)
            return run.profiles, run.code
        with progress() as events:
            return profile_target(request, events, keep), 0
    except BaseException:
        if keeper is not None and keeper.ids_kept:
            click.echo(f"Kept until then: {', '.join(keeper.ids_kept)}.", err=True)
        tell_troubles(keeper, 1)
        raise
