"""The pages by name: where each is, and the view that makes it. Server, API and site read this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchstone.show.page import Page
from torchstone.web.query import ROUTES, Query
from torchstone.web.sources import DataAccess
from torchstone.web.views.case import case
from torchstone.web.views.compare import compare
from torchstone.web.views.evidence import result
from torchstone.web.views.failures import failures
from torchstone.web.views.landing import landing
from torchstone.web.views.machines import machine, machines
from torchstone.web.views.monitors import monitor, monitors
from torchstone.web.views.profiles import profile, profiles
from torchstone.web.views.regressions import change, imported, regressions, series
from torchstone.web.views.runs import run, runs
from torchstone.web.views.scalings import scaling, scalings
from torchstone.web.views.suite import suite
from torchstone.web.views.tunings import tuning, tunings

View = Callable[[DataAccess, Query, str], Page]


@dataclass(frozen=True)
class PageDef:
    """One page. `view` takes what the page is about; pages about nothing in particular get ''."""

    name: str
    view: View
    summary: str

    @property
    def path(self) -> str:
        """Its route, with `{ident}` where it is about one thing."""
        return ROUTES[self.name].format("{ident}")

    @property
    def about_one(self) -> bool:
        """Whether the path names a thing."""
        return "{ident}" in self.path


def _plain(view: Callable[[DataAccess, Query], Page]) -> View:
    return lambda source, query, ident: view(source, query)


PAGES = {
    one.name: one
    for one in (
        PageDef("landing", _plain(landing), "Suites of the newest run, and their trends"),
        PageDef("suite", _plain(suite), "The models of a suite, base and new side by side"),
        PageDef("case", _plain(case), "One model under one variant over time, with its evidence"),
        PageDef("compare", _plain(compare), "Two runs against each other, case by case"),
        PageDef("failures", _plain(failures), "What fails, since when, and the first bad commit"),
        PageDef("regressions", _plain(regressions), "Changes of level: open, confirmed, closed"),
        PageDef("change", change, "One change of level: its series, its commits, its state"),
        PageDef("imported", _plain(imported), "Series that other tools measured"),
        PageDef("series", series, "One imported series over time, with its changes"),
        PageDef("machines", _plain(machines), "Machines that measured"),
        PageDef("machine", machine, "One machine: calibration, noise, machine checks"),
        PageDef("runs", _plain(runs), "Stored runs, the newest first"),
        PageDef("run", run, "One run, and how far it is"),
        PageDef("profiles", _plain(profiles), "Stored profiles, the newest first"),
        PageDef("profile", profile, "What one profile says in short"),
        PageDef("tunings", _plain(tunings), "Stored tunings, the newest first"),
        PageDef("tuning", tuning, "One tuning: adopted steps, experiments, time against memory"),
        PageDef("scalings", _plain(scalings), "Stored scalings over ranks, the newest first"),
        PageDef("scaling", scaling, "One target over ranks: efficiency, communication, gradients"),
        PageDef("monitors", _plain(monitors), "Trainings and services monitored on this machine"),
        PageDef("monitor", monitor, "One monitored training or service, live"),
        PageDef("result", result, "One result with its samples, checks and contract"),
    )
}
