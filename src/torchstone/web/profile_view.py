"""The views of a profile as a page of the server: the same scripts, and no inline code."""

from __future__ import annotations

from markupsafe import Markup

from torchstone.records import Profile
from torchstone.show.profile_data import profile_json
from torchstone.show.text import sanitise
from torchstone.web.links import Links
from torchstone.web.page import Place
from torchstone.web.render import environment
from torchstone.web.sources import Source


def profile_page(source: Source, ident: str, links: Links) -> str:
    """The page. Its data stand in an element that no browser runs."""
    found = source.profile(ident)
    template = environment().get_template("profile.html")
    return template.render(
        title=_title(found),
        data=Markup(source.made_of(found, _data)),  # made for a script element, and safe in one
        links=links,
        back=links.url(Place("profile", found.id)),
    )


def _title(profile: Profile) -> str:
    return sanitise(profile.label or profile.id)


def _data(profile: Profile) -> str:
    return profile_json([profile], _title(profile))
