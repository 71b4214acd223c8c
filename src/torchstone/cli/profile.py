"""`torchstone profile`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt
from torchstone.cli.app import screen

if TYPE_CHECKING:
    from torchstone.lab.profile import ProfileRequest
    from torchstone.lab.recording import Recorder
    from torchstone.records import Profile


class ProgramCommand(click.Command):
    """What follows a program is its own; ours comes before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set what follows the program apart before click sees it."""
        place = self.first_positional(args)
        if place >= len(args):
            return super().parse_args(ctx, args)
        module = args[place] == "-m"
        ours, rest = args[:place], args[place + module :]
        return super().parse_args(ctx, [*ours, *(["-m"] if module else []), "--", *rest])

    def first_positional(self, args: list[str]) -> int:
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


class ProfileCommand(ProgramCommand):
    """Options of a target may come after it, as elsewhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A target is put last; a program is left where it is."""
        from torchstone.lab.profile import is_target

        place = self.first_positional(args)
        if place < len(args) and args[place] != "-m" and is_target(args[place]):
            args = [*args[:place], *args[place + 1 :], "--", args[place]]
            return click.Command.parse_args(self, ctx, args)
        return super().parse_args(ctx, args)


@click.command(cls=ProfileCommand)
@click.argument("what", metavar="TARGET|SCRIPT", required=False, default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@opt.option("-m", "--module", is_flag=True, help="Run a module, as `python -m` does.")
@opt.option(
    "--how",
    default="sample",
    metavar="count|sample|trace|memory|all",
    help="In which way; all: the first three side by side.",
)
@opt.option("--pid", type=int, metavar="PID", help="Look at a process that runs already (py-spy).")
@opt.option("--top", is_flag=True, help="With --pid: show what it does, every two seconds.")
@opt.option(
    "--duration",
    type=opt.DURATION,
    metavar="DURATION",
    help="With --pid: how long (default: 10s; with --top until Ctrl-C).",
)
@opt.option("--out", metavar="FILE", help="Write the profile; the ending says the format.")
@opt.option("--format", metavar="NAME", help="Write --out in this format, whatever its ending.")
@opt.option("--view", is_flag=True, help="Write an HTML page to look at it.")
@opt.option("--steps", type=int, help="Steps of a target to profile (default: by time).")
@opt.option("--rate", type=float, default=100.0, metavar="HZ", help="Samples a second.")
@opt.option(
    "--clock",
    default="wall",
    metavar="wall|cpu|gil",
    help="What samples measure: time, CPU time, or holding the GIL.",
)
@opt.option("--native", is_flag=True, help="Samples show native functions too (py-spy).")
@opt.option(
    "--include-imports",
    is_flag=True,
    help="Of a program: list functions that were called to import modules, too.",
)
@opt.option(
    "--functions", multiple=True, metavar="NAME", help="Look at these line by line (memory)."
)
@opt.arm_options
@opt.allocator_option
@opt.option("--variant", default="eager", help="How a target is run.")
@opt.option("--vs", multiple=True, metavar="VARIANT", help="Profile this variant as well.")
@opt.option("--timeout", type=opt.DURATION, default="60s", help="For a step.")
@opt.option(
    "--cost/--no-cost",
    default=None,
    help="Measure what profiling costs (default: of a target; a program is run again for it).",
)
@opt.database_option
@opt.json_option
@opt.save_option("Keep the profile.")
def profile(
    what: str,
    out: str | None,
    format: str | None,
    view: bool,
    rate: float,
    clock: str,
    native: bool,
    functions: tuple[str, ...],
    include_imports: bool,
    pid: int | None,
    top: bool,
    duration: float | None,
    timeout: float,
    output: opt.Output,
    db: str | None,
    save: bool,
    **asked: Any,
) -> int:
    """Profile the time or memory of a step, or of a program.

    The steady step of a TARGET is profiled in a process of its own, after warm-up. A SCRIPT or a
    module is run as Python runs it; what follows it is its own, so give options before it.

    \b
    Examples:
      torchstone profile model.py:make
      torchstone profile model.py:make --how trace --mode training --out step.trace.json
      torchstone profile model.py:make --how all --view
      torchstone profile --how count --out train.prof train.py --epochs 1
      torchstone profile --how memory --functions load -m mypackage.prepare
      torchstone profile --pid 4321 --duration 30s --view
      torchstone profile --pid 4321 --top
    """
    from torchstone.lab.profile import ProfileRequest
    from torchstone.lab.recording import Recorder
    from torchstone.profile.probes import ProbeOptions

    check_out(out, format)
    options = ProbeOptions(rate_hz=rate, clock=clock, native=native, functions=tuple(functions))
    request = ProfileRequest(what, options=options, timeout_s=timeout, **asked)
    _check_what(what, pid, top, duration)
    recorder = Recorder(db, saves=save)
    if save:
        recorder.check()
    if pid is not None:
        found, code = _attached(request, pid, duration, recorder, _Top(pid) if top else None)
    else:
        found, code = _profiled(request, recorder)
    page = _page_of(found[0]) if view else None
    deliver_profiles(output, found, out, format, page, recorder.ids_kept, include_imports)
    return opt.print_storage_warnings(recorder, code)


def _check_what(what: str, pid: int | None, top: bool, duration: float | None) -> None:
    from torchstone.records import UsageError

    if pid is None and not what:
        raise UsageError(
            "There is nothing to profile.", "Name a target (model.py:make), a script, or --pid."
        )
    if pid is not None and what:
        raise UsageError("--pid looks at a process, so there is nothing to run.", f"Drop {what}.")
    if pid is None and (top or duration is not None):
        raise UsageError("--top and --duration are for --pid.", "Remove this option.")


class _Top:
    """The functions that a process was in during the last seconds, over and over in place."""

    ROWS = 15

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __call__(self, last: Profile, seconds: float) -> None:
        """One more round."""
        import shutil

        from torchstone.show.profile_text import profile_text
        from torchstone.show.table import can_unicode

        tty = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if tty else opt.PLAIN_WIDTH
        text = profile_text(
            replace(last, label=f"process {self._pid}, the last {last.wall_s:.0f} s", notes=()),
            color=tty and not os.environ.get("NO_COLOR"),
            width=width,
            unicode=can_unicode(sys.stdout),
            top=self.ROWS,
            imports=True,
        )
        if tty:
            screen().write("\x1b[H\x1b[2J")
        said = f"{seconds:.0f} s so far; Ctrl-C ends it and keeps the profile\n"
        click.echo(f"{text}{said}", color=True)


def _attached(
    request: ProfileRequest,
    pid: int,
    duration: float | None,
    recorder: Recorder,
    top: _Top | None,
) -> tuple[tuple[Profile, ...], int]:
    """A process that runs already; Ctrl-C ends the looking, and what was seen is kept."""
    from torchstone.lab.profile import profile_process

    with opt.progress() as events:
        found, interrupted = profile_process(request, pid, duration, events, top)
    if recorder.saves:
        with recorder.collect_errors("The profile was not kept"):
            recorder.save_profile(found)
            recorder.ids_kept.append(found.id)
    ended = interrupted and (top is None or duration is not None)
    return (found,), opt.Exit.INTERRUPTED if ended else opt.Exit.OK


def _profiled(request: ProfileRequest, recorder: Recorder) -> tuple[tuple[Profile, ...], int]:
    """The profiles, kept, and the exit code: a program's own."""
    from torchstone.lab.profile import profile_script, profile_target

    def keep(one: Profile) -> None:
        if recorder.saves:
            with recorder.collect_errors("The profile was not kept"):
                recorder.save_profile(one)
                recorder.ids_kept.append(one.id)

    try:
        if not request.is_target:
            run = profile_script(request, opt.progress, keep)
            return run.profiles, run.code
        with opt.progress() as events:
            return profile_target(request, events, keep), 0
    except BaseException:
        if recorder.ids_kept:
            click.echo(f"Kept until then: {', '.join(recorder.ids_kept)}.", err=True)
        opt.print_storage_warnings(recorder, 1)
        raise


# Profiles to the terminal, to files and to a page: what `profile` and `show` share.


PAGES = (".html", ".svg")
_TOP = 20
_TOP_OF_SEVERAL = 6


def check_out(out: str | None, format: str | None = None) -> None:
    """Find out before profiling whether the file can be written, and in which format."""
    from torchstone.profile import find_format
    from torchstone.profile.context import format_of
    from torchstone.records import UsageError

    if out is None:
        if format is not None:
            raise UsageError("--format says how --out is written.", "Give --out FILE as well.")
        return
    opt.check_path(out)
    if format is not None:
        find_format(format)
    elif not out.lower().endswith(PAGES):
        format_of(Path(out), PAGES)


def deliver_profiles(
    output: opt.Output,
    profiles: Sequence[Profile],
    out: str | None,
    format: str | None,
    page: str | None,
    kept: Sequence[str] = (),
    imports: bool = False,
) -> None:
    """Print and write what was asked for; where things are is said last."""
    from torchstone.show.table import sanitise

    output.deliver(partial(_text, profiles, imports), partial(_json, profiles))
    said = []
    if out is not None:
        for name, remarks in _write(profiles, out, format):
            said += [f"The profile is in {name}.", *remarks]
    if page is not None:
        _write_page(profiles, page)
        said.append(f"The page is {page}")
    said += [f"Kept as {one}: `torchstone show {one}`." for one in kept]
    for sentence in said:
        click.echo(sanitise(sentence), err=output.alone)


def show_profiles(
    output: opt.Output, names: Sequence[str], out: str | None, view: bool, db: str | None
) -> None:
    """`torchstone show` of a file, or of two profiles; of two the page opens with what changed.

    It stands beside the file, and is also written where nothing else was asked for.
    """
    from torchstone.lab.output_files import writable

    check_out(out)
    found = [_profile_of(name, db, named=len(names) > 1) for name in names]
    if os.path.isfile(names[-1]):
        page = f"{names[-1]}.html" if len(names) == 1 else f"{names[-1]}.diff.html"
    else:
        page = _page_of(*found)
    wanted = view or (out is None and output.json_path is None and writable(page))
    deliver_profiles(output, found, out, None, page if wanted else None)


def show_profile(output: opt.Output, profile: Profile, out: str | None, view: bool) -> None:
    """`torchstone show ID` of a profile that is stored."""
    check_out(out)
    deliver_profiles(output, [profile], out, None, _page_of(profile) if view else None)


def _page_of(*profiles: Profile) -> str:
    """A name for their page, in the folder we are in."""
    return f"torchstone-profile-{'-'.join(one.id for one in profiles)}.html"


def _profile_of(name: str, db: str | None, *, named: bool) -> Profile:
    """That of a file, or one that is stored; `named`: to be told from another by a label."""
    from torchstone.profile import read_profile
    from torchstone.store import open_store

    if os.path.isfile(name):
        profile = read_profile(name)
        label = profile.label or (os.path.basename(name) if named else "")
        return replace(profile, label=label)
    with open_store(db, create=False, read_only=True) as store:
        return store.load_profile(name)


def _text(profiles: Sequence[Profile], imports: bool, **how: Any) -> str:
    from torchstone.show.profile_text import lines_text, profile_text, ways_text

    top = _TOP if len(profiles) == 1 else _TOP_OF_SEVERAL
    parts = []
    for one in profiles:
        parts += [profile_text(one, top=top, imports=imports, **how), lines_text(one, **how)]
    return "".join(f"{part}\n" for part in (*parts, ways_text(profiles, **how)) if part)


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
    from torchstone.show.profile_html import profile_svg

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
            with writing(name):
                found.append((name, write_profile(one, name, format or format_of(Path(out)))))
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
