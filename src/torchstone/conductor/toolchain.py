"""Whether the compiler's own one-time cost has been paid on this machine.

Inductor precompiles headers and keeps them for all cases, outside their caches. It knows each by
its text, the command line and the compiler, so a new torch, a new compiler or another kind of
compilation pays anew. What was paid is remembered in a file beside the headers, and holds while
they are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchstone.records import ArmSpec

VARIANTS = ("inductor", "aoti")
"""Kinds of compilation that precompile headers, each its own."""
ASK_TIMEOUT_S = 60.0
"""For an interpreter that starts and reads two files; it takes a tenth of a second."""
MOST_BYTES = 1_000_000
_SETTINGS = ("CXX", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS")
_ASK = r"""
import getpass, importlib.util, json, os, re, sys, tempfile
sys.path[:] = [folder for folder in sys.path if folder]
spec = importlib.util.find_spec("torch")
origin = spec.origin if spec and spec.origin else ""
version = os.path.join(os.path.dirname(origin), "version.py")
text = open(version, encoding="utf-8").read() if origin and os.path.isfile(version) else ""
try:
    user = getpass.getuser()
except (KeyError, ImportError, OSError):
    user = f"uid_{os.getuid()}"
folder = "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)
print(json.dumps([sys.version, origin, text, os.path.join(tempfile.gettempdir(), folder)]))
"""
"""Asked of the arm's interpreter: its torch, not imported, and where inductor keeps its files."""


@dataclass(frozen=True)
class Mark:
    """What says that the headers of one kind of compilation have been made."""

    path: Path
    folder: Path

    @property
    def holds(self) -> bool:
        """Whether they have, and all of them are still there."""
        try:
            if self.path.stat().st_size > MOST_BYTES:
                return False
            made = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(made, list) and self.headers() >= {str(name) for name in made}

    def headers(self) -> frozenset[str]:
        """The precompiled headers that are there now."""
        try:
            return frozenset(name for name in os.listdir(self.folder) if name.endswith(".gch"))
        except OSError:
            return frozenset()

    def put(self) -> None:
        """Remember those that are there now. Where that cannot be, they are asked for again."""
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(exist_ok=True)
            part.write_text(json.dumps(sorted(self.headers())), "utf-8")
            os.replace(part, self.path)
        except OSError:
            return


def mark_of(python: str, env: Mapping[str, str], spec: ArmSpec) -> Mark | None:
    """By interpreter, torch, compiler and kind of compilation; None where that cannot be told."""
    asked = _output([python, "-c", _ASK], env)
    compiler = _output([env.get("CXX") or "g++", "--version"], env)
    try:
        version, origin, torch, folder = json.loads(asked)
    except (ValueError, TypeError):
        return None
    settings = [env.get(name, "") for name in _SETTINGS]
    kind = [spec.variant.split("+")[0], spec.device.split(":")[0]]
    parts = json.dumps([python, version, origin, torch, compiler, settings, kind])
    name = hashlib.sha256(parts.encode()).hexdigest()[:16]
    place = Path(folder)
    return Mark(place / f"torchstone-toolchain-{name}.json", place / "precompiled_headers")


def _output(command: list[str], env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
