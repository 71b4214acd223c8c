"""The documentation's commands, run for real; see `pages` for how they are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import NOT_RUN, ROOT, Page, all_pages, read_commands, read_page
from tests.examples.running import TIMEOUT_S, environment

PAGES = [page for page in all_pages() if page.commands]
LONG = (
    "allocator.md",
    "compare.md",
    "contract.md",
    "fast.md",
    "monitor.md",
    "timeit.md",
    "pytest.md",
)
"""Pages whose commands take more than ten seconds; they run among the slow tests."""
PROGRAMS = {
    # Two processes an arm: what is printed has the same words as with the usual number.
    "torchstone": '#!/bin/sh\n[ "$1" != bench ] || set -- "$@" --replicates 2\n'
    'exec "{python}" -m torchstone "$@"\n',
    "python": '#!/bin/sh\nexec "{python}" "$@"\n',
}
MOST_NOT_RUN = 2
"""Blocks that need what a test machine may not have. Think twice before raising it."""


def name_of(page: Page) -> str:
    return page.path.relative_to(ROOT).as_posix()


def is_slow(page: Page) -> bool:
    return page.slow or page.path.name in LONG


def workshop(page: Page, folder: Path) -> dict[str, str]:
    """A folder with the examples and the page's files; the programs are those under test."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name, text in page.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        program = programs / name
        program.write_text(text.format(python=sys.executable), encoding="utf-8")
        program.chmod(0o755)
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    return environment(PATH=path, TORCHSTONE_DB=str(folder / "results.db"))


def run_page(page: Page, folder: Path) -> list[str]:
    """Run the commands in order; returns what went wrong."""
    env = workshop(page, folder)
    wrong: list[str] = []
    for command in page.commands:
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        output = done.stdout + done.stderr
        if done.returncode != 0:
            wrong.append(f"$ {command.line}\nexit code {done.returncode}\n{output[-1500:]}")
        missing = [word for word in command.words() if word not in output]
        if missing:
            wrong.append(f"$ {command.line}\nshows {missing}, but printed\n{output[-1500:]}")
    return wrong


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if is_slow(page) else [])
        for page in PAGES
    ],
)
def test_the_commands_do_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    wrong = run_page(page, tmp_path)
    assert not wrong, "\n\n".join(wrong)


def test_few_blocks_are_exempt() -> None:
    texts = [page.path.read_text(encoding="utf-8") for page in all_pages()]
    assert sum(text.count(NOT_RUN) for text in texts) <= MOST_NOT_RUN


def test_a_false_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# mine.py\nprint('really')\n```\n\nThen\n\n```console\n"
        "$ python mine.py\nunheard words\n$ torchstone no-such-command\n```\n\n"
        f"{NOT_RUN}\n```console\n$ false\n```\n"
    )
    (tmp_path / "folder").mkdir()
    wrong = run_page(read_page(page), tmp_path / "folder")
    assert len(wrong) == 2
    assert "shows ['unheard', 'words'], but printed\nreally" in wrong[0]
    assert "exit code 2" in wrong[1]


def test_commands_may_span_lines_and_leave_out_output() -> None:
    (command,) = read_commands("$ torchstone bench a.py:make \\\n    --vs x\nwhat it says\n...\n")
    assert command.line.split() == ["torchstone", "bench", "a.py:make", "--vs", "x"]
    assert command.words() == ["what", "says"]
