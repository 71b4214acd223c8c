"""Long columns as few bytes: what a page with a million spans is made of.

Integers are kept as differences to the smallest one, or to the one before where they grow, in as
many bytes as the largest needs; the first bytes of all come first, then the second bytes, because
that compresses best. Floats are kept whole, in the same order of bytes. `data.js` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_EXACT = 2**53
"""The largest integer that a JavaScript number holds exactly."""
_SMALL = 2**31 - 1
COMPRESS_FROM = 64 * 1024
"""Bytes from which the page's data are compressed; smaller ones stay readable."""
_GZIP_LEVEL = 6
FORMAT = 1


class Columns:
    """Columns gathered into one body of bytes; each `add` answers with its description."""

    def __init__(self) -> None:
        self.body = bytearray()

    def integers(
        self, values: Sequence[int] | NDArray[np.int64], *, growing: bool = False
    ) -> dict[str, Any]:
        """A column of integers; `growing` ones mostly rise, and are kept as steps."""
        import numpy as np

        array = _exact(values)
        small = not array.size or bool(max(abs(int(array.min())), abs(int(array.max()))) <= _SMALL)
        stored = np.diff(array, prepend=np.int64(0)) if growing else array
        low = int(stored.min()) if stored.size else 0
        shifted = (stored - low).astype("<u8")
        width = (int(shifted.max()).bit_length() + 7) // 8 if shifted.size else 0
        place = self._append(shifted.view(np.uint8).reshape(-1, 8)[:, :width])
        kind = "steps" if growing else "integers"
        form = "i4" if small else "f8"
        return _column(place, array.size, kind, form=form, width=width, low=low)

    def numbers(self, values: Sequence[float]) -> dict[str, Any]:
        """A column of floats; what is not finite becomes 0, whole numbers are kept as such."""
        import numpy as np

        array = np.nan_to_num(np.asarray(values, dtype=np.float64), posinf=0.0, neginf=0.0)
        whole = (array == np.trunc(array)) & (np.abs(array) < MOST_EXACT)
        if array.size and bool(np.all(whole)):
            return self.integers(array.astype(np.int64))
        place = self._append(array.astype("<f8").view(np.uint8).reshape(-1, 8))
        return _column(place, array.size, "floats")

    def _append(self, planes: NDArray[np.uint8]) -> int:
        place = len(self.body)
        self.body += planes.T.tobytes()
        return place


def _exact(values: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    try:
        array = np.asarray(values, dtype=np.int64)
    except OverflowError:
        array = np.asarray([max(-MOST_EXACT, min(MOST_EXACT, v)) for v in values], dtype=np.int64)
    return np.clip(array, -MOST_EXACT, MOST_EXACT)


def _column(place: int, count: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"column": {"at": place, "count": int(count), "kind": kind, **more}}


def container(head: Any, body: bytes) -> bytes:
    """Head and body in one: the head's length in four bytes, the head as JSON, the body."""
    text = json.dumps(head, allow_nan=False, separators=(",", ":")).encode("ascii")
    return len(text).to_bytes(4, "little") + text + body


def embedded(head: Any, body: bytes) -> str:
    """Head and body as JSON text that can stand inside a script element of type JSON."""
    whole = container(head, body)
    if len(whole) < COMPRESS_FROM:
        data = {"format": FORMAT, "head": head, "body": base64.b64encode(body).decode("ascii")}
    else:
        # No time stamp, so that the same profile gives the same page.
        packed = gzip.compress(whole, _GZIP_LEVEL, mtime=0)
        data = {"format": FORMAT, "gzip": base64.b64encode(packed).decode("ascii")}
    return script_safe(json.dumps(data, allow_nan=False, separators=(",", ":")))


def script_safe(text: str) -> str:
    """JSON text without a sign that could end the script element or open a comment in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
