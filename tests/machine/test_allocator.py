"""The allocator settings do what they say, in real processes."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.machine.support import clean_env, run
from torchstone.machine.memory import allocator_environment
from torchstone.records import UsageError

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")

FAULTS_PER_ROUND = """
import ctypes, threading
from torchstone.machine.memory import minor_faults
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def one(size, count):
    before = minor_faults()
    blocks = [libc.malloc(size) for _ in range(count)]
    for block in blocks: libc.memset(block, 1, size)
    for block in blocks: libc.free(block)
    return minor_faults() - before
def rounds():
    for size, count in SIZES:
        one(size, count)
        found.append(max(one(size, count) for _ in range(3)))
found = []
rounds()
thread = threading.Thread(target=rounds)
thread.start()
thread.join()
print(*found)
"""


@glibc
def test_keep_stops_the_faults_in_every_thread() -> None:
    code = f"SIZES = ((160 << 20, 1), (64 << 20, 1), (1 << 20, 64))\n{FAULTS_PER_ROUND}"
    kept = [int(n) for n in run(code, clean_env(**allocator_environment("keep"))).split()]
    assert len(kept) == 6
    assert max(kept) < 32
    code = f"SIZES = ((64 << 20, 1),)\n{FAULTS_PER_ROUND}"
    usual = [int(n) for n in run(code, clean_env()).split()]
    assert usual[0] > 10_000  # 64 MiB are 16384 pages: without the setting it does matter


def test_default_sets_nothing() -> None:
    assert allocator_environment("default") == {}


def test_an_unknown_allocator_is_an_error_that_names_the_known() -> None:
    with pytest.raises(UsageError) as error:
        allocator_environment("mimalloc")
    assert "jemalloc" in error.value.remedy


@pytest.mark.parametrize(
    ("name", "file"),
    [("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")],
)
@glibc
def test_a_library_is_found_loaded_and_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (tmp_path / file).write_text("not a library")  # must not be taken for one
    assert str(tmp_path) not in _preload_or_remedy(name)
    (tmp_path / "empty.c").write_text("int torchstone_test_allocator;")
    command = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / file), str(tmp_path / "empty.c")]
    subprocess.run(command, check=True)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    env = allocator_environment(name)
    assert env == {"LD_PRELOAD": str(tmp_path / file)}
    code = "from torchstone.machine import loaded_allocator as a; print(a())"
    assert run(code, clean_env(**env)) == name
    assert run(code, {k: v for k, v in clean_env().items() if k != "LD_PRELOAD"}) == "system"
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert allocator_environment(name)["LD_PRELOAD"].endswith(f"{file}:libother.so")


def _preload_or_remedy(name: str) -> str:
    """Which it is depends on what this machine has installed."""
    try:
        return allocator_environment(name)["LD_PRELOAD"]
    except UsageError as error:
        return error.remedy


def test_an_absent_library_is_an_error_with_the_package_to_install() -> None:
    told = _preload_or_remedy("jemalloc")
    assert "apt install libjemalloc2" in told or "libjemalloc.so" in told
    told = _preload_or_remedy("tcmalloc")
    assert "apt install libtcmalloc-minimal4" in told or "libtcmalloc" in told
