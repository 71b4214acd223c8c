"""`torchstone profile`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import (
    Duration,
    allocator_option,
    arm_options,
    check_json_path,
    database_option,
    json_option,
    print_storage_warnings,
    progress,
    use_color,
    width,
)

if TYPE_CHECKING:
    from torchstone.lab.profile import ProfileRequest
    from torchstone.lab.recording import Recorder
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
    from torchstone.lab.profile import ProfileRequest
    from torchstone.lab.recording import Recorder
    from torchstone.profile.probes import ProbeOptions

    check_json_path(json_path)
    check_out(out, format)
    options = ProbeOptions(rate_hz=rate, clock=clock, native=native, functions=tuple(functions))
    request = ProfileRequest(what, options=options, timeout_s=timeout, **asked)
    recorder = Recorder(db) if save else None
    if recorder is not None:
        recorder.check()
    found, code = _profiled(request, recorder)
    page = page_of(found[0]) if view else None
    deliver_profiles(found, out, format, page, json_path, recorder.ids_kept if recorder else ())
    return print_storage_warnings(recorder, code)


def _profiled(
    request: ProfileRequest, recorder: Recorder | None
) -> tuple[tuple[Profile, ...], int]:
    """The profiles, kept, and the exit code: a program's own."""
    from torchstone.lab.profile import profile_script, profile_target

    def keep(one: Profile) -> None:
        if recorder is not None:
            with recorder.collect_errors("The profile was not kept"):
                recorder.save_profile(one)
                recorder.ids_kept.append(one.id)

    try:
        if not request.is_target:
            run = profile_script(request, progress, keep)
            return run.profiles, run.code
        with progress() as events:
            return profile_target(request, events, keep), 0
    except BaseException:
        if recorder is not None and recorder.ids_kept:
            click.echo(f"Kept until then: {', '.join(recorder.ids_kept)}.", err=True)
        print_storage_warnings(recorder, 1)
        raise


# Profiles to the terminal, to files and to a page: what `profile` and `show` share.


PAGES = (".html", ".svg")
_TOP = 20
_TOP_OF_SEVERAL = 6


def check_out(out: str | None, format: str | None) -> None:
    """Find out before profiling whether the file can be written, and in which format."""
    from torchstone.lab.output_files import writable
    from torchstone.profile import find_format
    from torchstone.profile.context import format_of
    from torchstone.records import UsageError

    if out is None:
        if format is not None:
            raise UsageError("--format says how --out is written.", "Give --out FILE as well.")
        return
    if not writable(out):
        raise UsageError(f"{out} cannot be written.", "Name another file, or make its folder.")
    if format is not None:
        find_format(format)
    elif not out.lower().endswith(PAGES):
        format_of(Path(out), PAGES)


def deliver_profiles(
    profiles: Sequence[Profile],
    out: str | None,
    format: str | None,
    page: str | None,
    json_path: str | None,
    kept: Sequence[str] = (),
) -> None:
    """Print and write what was asked for; where things are is said last."""
    from torchstone import show
    from torchstone.lab.output_files import write_file

    said = []
    if json_path == "-":
        click.echo(_json(profiles))
    else:
        if json_path is not None:
            write_file(json_path, _json(profiles) + "\n")
        _print(profiles)
    if out is not None:
        for name, remarks in _write(profiles, out, format):
            said += [f"The profile is in {name}.", *remarks]
    if page is not None:
        _write_page(profiles, page)
        said.append(f"The page is {page}")
    said += [f"Kept as {one}: `torchstone show {one}`." for one in kept]
    for sentence in said:
        click.echo(show.sanitise(sentence), err=json_path == "-")


def page_of(profile: Profile) -> str:
    """A name for its page, in the folder we are in."""
    return f"torchstone-profile-{profile.id}.html"


def show_file(path: str, out: str | None, view: bool, json_path: str | None) -> int:
    """`torchstone show FILE`: the page stands beside the file."""
    from torchstone.profile import read_profile

    check_out(out, None)
    page = _unasked(f"{path}.html", out, view, json_path)
    deliver_profiles([read_profile(path)], out, None, page, json_path)
    return 0


def show_two(
    first: str, second: str, out: str | None, view: bool, json_path: str | None, db: str | None
) -> int:
    """`torchstone show A B`: the page opens with what changed from one to the other."""
    check_out(out, None)
    found = [_profile_of(first, db), _profile_of(second, db)]
    name = f"torchstone-profile-{found[0].id}-{found[1].id}.html"
    beside = f"{second}.diff.html" if os.path.isfile(second) else name
    deliver_profiles(found, out, None, _unasked(beside, out, view, json_path), json_path)
    return 0


def _profile_of(name: str, db: str | None) -> Profile:
    """That of a file, or one that is stored."""
    from torchstone.profile import read_profile
    from torchstone.store import open_store

    if os.path.isfile(name):
        profile = read_profile(name)
        return profile if profile.label else replace(profile, label=os.path.basename(name))
    with open_store(db, create=False, read_only=True) as store:
        return store.load_profile(name)


def _unasked(page: str, out: str | None, view: bool, json_path: str | None) -> str | None:
    """The page, where it was asked for, or where nothing else was and there is room for it."""
    from torchstone.lab.output_files import writable

    if view:
        return page
    return page if out is None and json_path is None and writable(page) else None


def show_profile(profile: Profile, out: str | None, view: bool, json_path: str | None) -> int:
    """`torchstone show ID` of a profile that is stored."""
    check_out(out, None)
    deliver_profiles([profile], out, None, page_of(profile) if view else None, json_path)
    return 0


def _print(profiles: Sequence[Profile]) -> None:
    from torchstone.show import can_unicode
    from torchstone.show.profile_text import lines_text, profile_text, ways_text

    unicode, top = can_unicode(sys.stdout), _TOP if len(profiles) == 1 else _TOP_OF_SEVERAL
    for one in profiles:
        text = profile_text(one, color=use_color(), width=width(), unicode=unicode, top=top)
        click.echo(text, color=True)
        lines = lines_text(one, color=use_color(), width=width(), unicode=unicode)
        if lines:
            click.echo(lines, color=True)
    compared = ways_text(profiles, color=use_color(), width=width(), unicode=unicode)
    if compared:
        click.echo(compared, color=True)


def _json(profiles: Sequence[Profile]) -> str:
    import json

    from torchstone.records import to_data

    document = {"schema": 1, "kind": "profiles", "profiles": [to_data(one) for one in profiles]}
    return json.dumps(document, allow_nan=False)


def _write(
    profiles: Sequence[Profile], out: str, format: str | None
) -> list[tuple[str, tuple[str, ...]]]:
    """One file; of several profiles a page holds all, and other formats have a file each."""
    from torchstone.lab.output_files import write_file, writing
    from torchstone.profile import write_profile
    from torchstone.profile.context import format_of
    from torchstone.show.profile_svg import profile_svg

    if format is None and out.lower().endswith(".html"):
        _write_page(profiles, out)
        return [(out, ())]
    found: list[tuple[str, tuple[str, ...]]] = []
    for number, one in enumerate(profiles):
        name = out if len(profiles) == 1 else _numbered(out, f"{number + 1}-{one.how}")
        if format is None and out.lower().endswith(".svg"):
            write_file(name, profile_svg(one))
            found.append((name, ()))
        else:
            chosen = format or format_of(Path(out))
            with writing(name):
                found.append((name, write_profile(one, name, chosen)))
    return found


def _numbered(out: str, mark: str) -> str:
    """`x.speedscope.json` becomes `x.1-count.speedscope.json`."""
    folder, name = os.path.split(out)
    stem, dot, ending = name.partition(".")
    return os.path.join(folder, f"{stem}.{mark}{dot}{ending}")


def _write_page(profiles: Sequence[Profile], path: str) -> None:
    """The page; opened where somebody sits before a screen."""
    from torchstone.lab.output_files import write_file
    from torchstone.show.profile_html import profile_html

    write_file(path, profile_html(profiles))
    display = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if display and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(Path(path).resolve().as_uri())
