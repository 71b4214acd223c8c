"""The events of a trace, one by one, so that a large file needs little memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from torchstone.profile.formats.base import bad

MAX_VALUE = 8 * 2**20
"""Characters of one event, or of one wanted value beside the events."""
EVENTS = "traceEvents"

_SPACE = re.compile(r"[ \t\r\n]*")
_MARK = re.compile(r'["\[\]{},]')
_IN_TEXT = re.compile(r'["\\]')
_SLACK = 16
"""A fault so close to the end of what was read may only mean that more must be read."""
_UNTERMINATED = "Unterminated string"


class EventReader:
    """Reads `[event, …]` or `{"traceEvents": [event, …], …}`.

    `header` holds what is wanted of what stands beside the events; the rest is passed over, as
    some tools put whole source files there. A list may lack its last bracket, as the format
    allows, so that a program that dies leaves a trace; `ended` says whether it is there.
    """

    def __init__(self, chunks: Iterator[bytes], name: str, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self.header: dict[str, Any] = {}
        self.ended = False
        self._name = name
        self._chunks = chunks
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._all_read = False
        self._events = 0

    def __iter__(self) -> Iterator[Any]:
        first = self._peek()
        if first == "[":
            self._at += 1
            yield from self._list(may_lack_end=True)
        elif first == "{":
            self._at += 1
            yield from self._object()
        else:
            raise bad(self._name, "this is not a trace: it is neither a JSON list nor an object")
        if self._peek():
            raise bad(self._name, "there is more behind the end of the trace")

    def _object(self) -> Iterator[Any]:
        if self._peek() == "}":
            self._at += 1
            self.ended = True
            return
        while True:
            key = self._value() if self._peek() == '"' else None
            if not isinstance(key, str) or self._peek() != ":":
                raise self._broken("a name is missing beside the events")
            self._at += 1
            if self._peek() == "[" and key == EVENTS:
                self._at += 1
                yield from self._list()
            elif key in self._wanted:
                self.header[key] = self._value()
            else:
                self._pass_over()
            mark = self._peek()
            if mark not in (",", "}"):
                raise self._broken(f"a comma is missing behind {key!r:.40}")
            self._at += 1
            if mark == "}":
                self.ended = True
                return

    def _list(self, may_lack_end: bool = False) -> Iterator[Any]:
        """The events up to and with the bracket."""
        mark = self._peek()
        while mark != "]":
            if not mark and may_lack_end and self._events:
                return
            yield self._value()
            self._events += 1
            mark = self._peek()
            if mark == ",":
                self._at += 1
                mark = self._peek()
            elif mark and mark != "]":
                raise self._broken("a comma is missing")
        self._at += 1
        self.ended = True

    def _peek(self) -> str:
        """The next character that is not white space; nothing at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _pass_over(self) -> None:
        """Go behind a value without making it."""
        depth = 0
        while True:
            found = _MARK.search(self._text, self._at)
            if not found:
                self._go_on()
                continue
            mark = found[0]
            if depth == 0 and mark in ",]}":
                self._at = found.start()
                return
            self._at = found.end()
            if mark == '"':
                self._pass_text()
            elif mark in "[{":
                depth += 1
            elif mark in "]}":
                depth -= 1

    def _pass_text(self) -> None:
        """Go behind the quote that ends a text."""
        while True:
            found = _IN_TEXT.search(self._text, self._at)
            if not found:
                self._go_on()
                continue
            self._at = found.end()
            if found[0] == '"':
                return
            if self._at == len(self._text):
                self._go_on()
            self._at += 1

    def _go_on(self) -> None:
        self._at = len(self._text)
        if not self._more():
            raise self._broken("the file is cut off")

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError:
                raise self._broken("it is nested too deep") from None
            except json.JSONDecodeError as error:
                if self._all_read and self._is_cut(error):
                    raise self._broken("the file is cut off in the middle of it") from None
                if not self._is_cut(error):
                    raise self._broken(f"it is not JSON ({error.msg})") from None
            except ValueError:  # an integer of thousands of digits
                raise self._broken("a number in it is too long") from None
            else:
                # A number that ends where the text ends may go on in what is not yet read.
                if end < len(self._text) or self._all_read or isinstance(value, (dict, list, str)):
                    self._at = end
                    return value
            wanted = 2 * (len(self._text) - self._at)
            if wanted > 2 * MAX_VALUE:
                raise self._broken(f"it is longer than {MAX_VALUE // 2**20} MiB")
            while len(self._text) - self._at < wanted and self._more():
                pass

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the fault may be that the text ends too early."""
        return error.pos >= len(self._text) - _SLACK or error.msg.startswith(_UNTERMINATED)

    def _more(self) -> bool:
        """Read on; False where there is nothing more."""
        if self._all_read:
            return False
        try:
            chunk = next(self._chunks, b"")
            text = self._utf8.decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            raise self._broken("it is not UTF-8") from None
        self._all_read = not chunk
        self._text = self._text[self._at :] + text
        self._at = 0
        return not self._all_read

    def _broken(self, what: str) -> Exception:
        return bad(self._name, f"behind {self._events:,} events that could be read, {what}")
