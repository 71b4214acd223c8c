"""Targets that print what they should keep to themselves."""

from __future__ import annotations

import os
import sys

from tests.targets.honest import Made, draw, squares

AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLQ"


def prints_then_dies() -> Made:
    def call(values: list[int]) -> int:
        sys.stderr.write(f"token is {os.environ['MY_TOKEN']}\n")
        sys.stderr.flush()
        os.abort()

    return call, draw


def raises_it() -> Made:
    def call(values: list[int]) -> int:
        raise RuntimeError(f"cannot log in with {os.environ['MY_TOKEN']} nor with {AWS_KEY}")

    return call, draw


def answers_with_it() -> Made:
    def call(values: list[int]) -> str:
        return os.environ["MY_TOKEN"]

    return call, draw


def answers_plainly() -> Made:
    return (lambda values: "nothing to see"), draw


def honest() -> Made:
    return squares, draw
