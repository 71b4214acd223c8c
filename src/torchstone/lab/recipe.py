"""`torchstone repro --recipe`: files that rebuild a stored result's environment elsewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from torchstone.records import Environment, Result, UsageError

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"(?:^|(?<=[\s='\"]))~?/[\w.][^\s'\"]*")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch keeps its builds for the CPU (`+cpu`); other indexes do not have them."""


def write_recipe(result: Result, folder: str) -> list[Path]:
    """A lock file, a Containerfile and a note on how to use them."""
    environment = next((arm.environment for arm in result.arms if arm.environment), None)
    if environment is None:
        raise UsageError(f"{result.id} has no environment on record: no arm got that far.")
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        files = {
            "requirements.lock": lock_file(environment, result.version),
            "Containerfile": containerfile(result, environment),
            "README.md": _readme(result, environment),
        }
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None
    return [place / name for name in files]


def lock_file(environment: Environment, torchstone: str = "") -> str:
    """Every package at the version that was measured, and torchstone, which measures it.

    Builds for the CPU come from PyTorch's own index; other local labels are kept as comments.
    """
    packages = {**environment.packages, "torchstone": torchstone}
    lines = [
        f"# the environment of a measurement on Python {environment.python.get('version', '?')}"
    ]
    if any(version.endswith("+cpu") for version in packages.values()):
        lines.append(f"--extra-index-url {CPU_INDEX}")
    for name, version in sorted(packages.items()):
        if not (_PACKAGE.fullmatch(name) and _VERSION.fullmatch(version)):
            continue  # came from outside: nothing but a name and a version may pass
        public, _, local = version.partition("+")
        if local == "cpu":
            public, local = version, ""
        lines.append(f"{name}=={public}" + (f"  # measured build: {local}" if local else ""))
    return "\n".join(lines) + "\n"


def containerfile(result: Result, environment: Environment) -> str:
    """From the same Python, with the lock file installed and the same variables set."""
    version = environment.python.get("version", "3")
    version = version if _VERSION.fullmatch(version) else "3"
    lines = [
        f"FROM python:{version}-slim",
        "RUN apt-get update && apt-get install -y --no-install-recommends g++ git "
        "&& rm -rf /var/lib/apt/lists/*",
        "COPY requirements.lock /requirements.lock",
        "RUN pip install --no-cache-dir -r /requirements.lock",
    ]
    for name, value in sorted(environment.variables.items()):
        if _NAME.fullmatch(name) and name.isupper() and "\n" not in value:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
            lines.append(f'ENV {name}="{quoted}"')
    lines += ["COPY . /work", "WORKDIR /work"]
    words = ", ".join(f'"{_json(word)}"' for word in result.command)
    lines.append(f"CMD [{words}]")
    return "\n".join(lines) + "\n"


def _json(word: str) -> str:
    return (
        "".join(c if c.isprintable() else " " for c in word)
        .replace("\\", "\\\\")
        .replace('"', '\\"')
    )


def _readme(result: Result, environment: Environment) -> str:
    git = environment.git
    commit = f"commit `{git.commit}`" if git else "no known commit"
    dirty = " with uncommitted changes, which are not recorded" if git and git.dirty else ""
    command = shlex.join(result.command)
    cpu, memory = environment.cpu.get("model", "unknown CPU"), environment.memory_bytes / 2**30
    return (
        f"# Recipe for {result.id}\n\n"
        f"Measured from {commit}{dirty}. Check that out here, beside these files, then:\n\n"
        "    podman build -t torchstone-recipe .\n"
        "    podman run --rm torchstone-recipe\n\n"
        f"which runs `{command}`. Times depend on the machine ({cpu}, {memory:.0f} GiB);\n"
        "outcomes and outputs should not.\n"
        + _places_elsewhere(result)
        + _what_is_missing(result, environment)
    )


def _places_elsewhere(result: Result) -> str:
    """Files that the command names and no checkout has: they were elsewhere on that machine."""
    if any(arm.arm.statement is not None for arm in result.arms):
        return ""
    found = dict.fromkeys(place for word in result.command for place in _PLACE.findall(word))
    if not found:
        return ""
    return (
        f"\nThe command names places of the machine that it was run on: {', '.join(found)}.\n"
        "Put what is there beside these files too, and change the last line of `Containerfile`.\n"
    )


def _what_is_missing(result: Result, environment: Environment) -> str:
    """Arms that these files do not rebuild: they ran on another Python or with other packages."""
    other = []
    for arm in result.arms:
        found = arm.environment
        if found is None or _installed(found) == _installed(environment):
            continue
        python, torch = found.python.get("version", "?"), found.torch.get("version", "none")
        other.append(f"- `{arm.arm.name}`: Python {python}, torch {torch}\n")
    if not other:
        return ""
    return (
        "\nThe files rebuild the environment of the first arm. These arms had another one, which\n"
        "must be installed beside it under the name that the command gives (`python=...`):\n\n"
        + "".join(other)
    )


def _installed(environment: Environment) -> tuple[str | None, dict[str, str]]:
    return environment.python.get("version"), dict(environment.packages)
