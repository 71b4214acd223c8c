"""Hands and eyes for canvases: where to click, what colour a place has."""

from __future__ import annotations

from typing import Any

ROW = 22


def box(page: Any, panel: str = "tree") -> dict[str, float]:
    """The canvas of a view."""
    found: dict[str, float] = page.locator(f"#panel-{panel} canvas").first.bounding_box()
    return found


def place(page: Any, share: float, row: int, panel: str = "tree") -> tuple[float, float]:
    """The middle of a row of the icicle, so far across."""
    found = box(page, panel)
    return found["x"] + share * found["width"], found["y"] + (row + 0.5) * ROW


def click(page: Any, share: float, row: int, panel: str = "tree") -> None:
    page.mouse.click(*place(page, share, row, panel))
    settle(page)


def hover(page: Any, share: float, row: int, panel: str = "tree") -> str:
    """What the tooltip says there; nothing where it is hidden."""
    page.mouse.move(*place(page, share, row, panel))
    settle(page)
    tip = f"#panel-{panel} .tooltip"
    return "" if page.locator(tip).first.is_hidden() else text(page, tip)


def settle(page: Any) -> None:
    """Until what was asked for is painted."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def text(page: Any, selector: str) -> str:
    """The text of an element, each of its parts on a line."""
    found: str = page.locator(selector).first.inner_text()
    return found


def crumbs(page: Any, panel: str = "tree") -> list[str]:
    found: list[str] = page.locator(f"#panel-{panel} .crumbs button").all_inner_texts()
    return found


def colour(page: Any, share: float, row: int, panel: str = "tree") -> tuple[int, int, int]:
    """Red, green and blue near the lower edge of a box, where no letters are."""
    found = page.evaluate(
        """([panel, share, row, height]) => {
          const canvas = document.querySelector(`#panel-${panel} canvas`);
          const ratio = canvas.width / canvas.clientWidth;
          const x = Math.round(share * canvas.width);
          const y = Math.round((row * height + height - 4) * ratio);
          const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
          copy.drawImage(canvas, -x, -y);
          return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        [panel, share, row, ROW],
    )
    return tuple(found)


def rows(page: Any, panel: str = "functions", column: int = 0) -> list[str]:
    """The texts of a column, in the order they are shown."""
    found: list[str] = page.evaluate(
        """([panel, column]) => [...document.querySelectorAll(`#panel-${panel} .row`)]
          .sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))
          .map(row => row.children[column].textContent)""",
        [panel, column],
    )
    return found
