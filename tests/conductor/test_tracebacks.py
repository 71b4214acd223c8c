"""What is left of a traceback when our own frames are taken out."""

from __future__ import annotations

from torchstone.conductor.worker import without_ours

OURS = "/tmp/torchstone-x/payload/torchstone/workloads/load.py"
TRACEBACK = f"""Traceback (most recent call last):
  File "{OURS}", line 3, in load
    return made()
           ^^^^^^
  File "<frozen importlib._bootstrap>", line 1204, in _gcd_import
  File "/home/me/model.py", line 9, in make
    return broken()
           ^^^^^^^^
  File "{OURS}", line 7, in broken
ValueError: no luck
"""
FATAL = f"""a warning of theirs
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/home/me/model.py", line 5 in forward
  File "{OURS}", line 41 in call
  File "/tmp/torchstone-x/payload/worker.py", line 40 in <module>

Extension modules: numpy.core, torch._C (total: 2)
"""


def test_a_traceback_keeps_the_users_frames_and_its_last_line() -> None:
    assert without_ours(TRACEBACK).splitlines() == [
        "Traceback (most recent call last):",
        '  File "/home/me/model.py", line 9, in make',
        "    return broken()",
        "           ^^^^^^^^",
        "ValueError: no luck",
    ]


def test_a_fatal_error_keeps_where_it_happened() -> None:
    kept = [line for line in without_ours(FATAL).splitlines() if line]
    assert kept == [
        "a warning of theirs",
        "Fatal Python error: Segmentation fault",
        "Current thread 0x00007f (most recent call first):",
        '  File "/home/me/model.py", line 5 in forward',
    ]


def test_what_is_no_traceback_is_left_alone() -> None:
    assert without_ours("plain\n    indented\nend") == "plain\n    indented\nend"
