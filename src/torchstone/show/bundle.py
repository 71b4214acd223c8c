"""Our ES modules as one script, so that a page can stand alone.

Each module becomes a function scope of its own; what it imports and exports is handed over by
name. Only the forms that our modules use are understood, and anything else is refused.
"""

from __future__ import annotations

import re
from importlib.resources import files

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


def asset(folder: str, name: str) -> str:
    """The text of a file that ships with the package."""
    place = files("torchstone.show").joinpath("assets").joinpath(folder).joinpath(name)
    return place.read_text(encoding="utf-8")


def bundle(folder: str, entry: str, call: str) -> str:
    """The module `entry` of a folder and all that it imports, then a call of its `call`."""
    done: dict[str, str] = {}
    _gather(folder, entry, done, ())
    parts = ['"use strict";', *done.values(), f"{_scope(entry)}.{call}();"]
    script = "\n".join(parts) + "\n"
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("a script that ends its own element")
    return script


def _gather(folder: str, name: str, done: dict[str, str], path: tuple[str, ...]) -> None:
    """Add a module after those that it needs."""
    if name in done:
        return
    if name in path:
        raise ValueError(f"modules import each other in a ring: {' → '.join((*path, name))}")
    source = asset(folder, f"{name}.js")
    for match in _IMPORT.finditer(source):
        _gather(folder, match.group(2), done, (*path, name))
    done[name] = _wrapped(name, source)


def _wrapped(name: str, source: str) -> str:
    exported = _EXPORT.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub(_handed_over, source))
    left = _LEFT_OVER.search(body)
    if left:
        raise ValueError(f"{name}.js has a line that cannot be bundled: {left.group().strip()}")
    return f"const {_scope(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _handed_over(match: re.Match[str]) -> str:
    names = " ".join(match.group(1).split()).rstrip(",")
    if " as " in names:
        raise ValueError(f"an import under another name cannot be bundled: {names}")
    return f"const {{ {names} }} = {_scope(match.group(2))};\n"


def _scope(name: str) -> str:
    return f"module_{name}"
