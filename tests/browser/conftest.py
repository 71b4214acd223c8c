"""A page that may neither fetch nor complain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from torchstone.records import Profile
from torchstone.show.profile_html import profile_html

PAINTED = "performance.getEntriesByName('torchstone-painted').length > 0"
# Nothing here is about speed, and a shared machine may be slow.
PATIENCE_MS = 60_000
POLL_MS = 20
SIZE = {"width": 1200, "height": 800}

OpenPage = Callable[..., Any]


def wait_until_painted(page: Any) -> None:
    """Ask again and again; waiting inside the page needs `eval`, which the page forbids."""
    for _ in range(PATIENCE_MS // POLL_MS):
        if page.evaluate(PAINTED):
            return
        page.wait_for_timeout(POLL_MS)
    pytest.fail("nothing was painted")


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[OpenPage]:
    """Write profiles as a page and open it. Whatever the page asks for or complains of fails the
    test."""
    seen: list[str] = []
    contexts: list[Any] = []

    def opened(profiles: Sequence[Profile], title: str = "", **settings: Any) -> Any:
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(profile_html(profiles, title), encoding="utf-8")
        context = browser.new_context(
            **{"viewport": SIZE, "reduced_motion": "reduce", "color_scheme": "light", **settings}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: seen.append(f"asked for {request.url[:80]}"))
        page.on("console", lambda message: seen.append(f"said {message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"failed: {error}"))
        page.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
        page.goto(file.as_uri())
        assert seen.pop(0) == f"asked for {file.as_uri()[:80]}"
        if settings.get("java_script_enabled", True):
            wait_until_painted(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert seen == []
