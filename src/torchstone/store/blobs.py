"""One sealed envelope for everything kept as bytes: a format byte, then a zlib stream."""

from __future__ import annotations

import zlib

FORMAT = 1
"""The first byte of every envelope. A reader refuses a format that it does not know."""

MAX_UNSEALED = 128 * 1024 * 1024
"""Bytes. No envelope unpacks to more, so a small hostile file cannot fill the memory. A step
measured for an hour leaves some 10 MB, so the limit is far above any honest result."""

_LEVEL = 9  # on the small payloads of a case it costs a few milliseconds, once


class BlobError(ValueError):
    """Bytes that are not what this program wrote, or data that it cannot write."""


def seal(payload: bytes) -> bytes:
    """The payload, compressed, behind its format byte."""
    if len(payload) > MAX_UNSEALED:
        raise BlobError(f"{len(payload)} bytes are more than the limit of {MAX_UNSEALED}")
    return bytes((FORMAT,)) + zlib.compress(payload, _LEVEL)


def unseal(blob: bytes, limit: int = MAX_UNSEALED) -> bytes:
    """The payload of an envelope, of at most `limit` bytes; anything else is an error."""
    if not blob:
        raise BlobError("no bytes at all")
    if blob[0] != FORMAT:
        raise BlobError(f"unknown format {blob[0]}")
    inflate = zlib.decompressobj()
    try:
        # One byte more than allowed tells "just fits" from "too long" without unpacking it all.
        payload = inflate.decompress(blob[1:], limit + 1)
    except zlib.error as error:
        raise BlobError(f"damaged bytes ({error})") from None
    if len(payload) > limit:
        raise BlobError(f"more than {limit} bytes when unpacked")
    if not inflate.eof:
        raise BlobError("the bytes end too early")
    if inflate.unused_data:
        raise BlobError("bytes after the end")
    return payload
