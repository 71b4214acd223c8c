"""Every checkup, on a clean machine and on machines with one thing wrong, planted as real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.machine.doctor_tree import (
    CLOCK,
    CPU,
    GROUP,
    VERSION_1,
    ZONE,
    empty_view,
    findings,
    noise,
    only,
    pressure,
    stat,
    ticks,
    view,
)
from torchstone.machine.doctor import Checkup, system
from torchstone.machine.doctor import processors as accelerator
from torchstone.machine.doctor import processors as cores
from torchstone.machine.doctor.base import split_fix
from torchstone.records import Level

FROM_FILES: list[Checkup] = [
    *(cores.GOVERNOR, cores.BOOST, cores.SMT, cores.VIRTUAL),
    *(cores.CORE, cores.CORE_SPEED, cores.STEAL),
    *(cores.PROCESSES, cores.LOAD, cores.PRESSURE),
    *(system.CPU_QUOTA, system.THROTTLING, system.HEAT, system.MEMORY, system.SWAP, system.POWER),
    *(system.HUGE_PAGES, system.ADDRESS_LAYOUT, system.CLOCK, system.PERF_EVENTS),
    accelerator.ACCELERATOR,
]
FROM_ELSEWHERE: list[Checkup] = [
    *(cores.AFFINITY, system.THREADS, system.VARIABLES, system.ALLOCATOR)
]
NEVER_OK = {"accelerator", "allocator"}
"""Without a card there is none to call well; an allocator is a matter of what is compared."""

SIBLINGS = {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}" for n in range(4)}
HIDDEN_LOAD = ticks([1050, 1000, 1095, 1095], busy=1050)
OLD_GROUP = "sys/fs/cgroup/cpu/app"


@pytest.mark.parametrize("checkup", [*FROM_FILES, *FROM_ELSEWHERE], ids=lambda c: c.name)
def test_a_clean_machine_is_left_alone(checkup: Checkup, tmp_path: Path) -> None:
    found = findings(checkup, view(tmp_path))
    assert found
    expected = Level.NOTE if checkup.name in NEVER_OK else Level.OK
    assert {finding.level for finding in found} == {expected}, found
    assert not any(finding.fixes for finding in found)


@pytest.mark.parametrize("checkup", FROM_FILES, ids=lambda c: c.name)
def test_what_does_not_exist_is_never_called_well(checkup: Checkup, tmp_path: Path) -> None:
    found = findings(checkup, empty_view(tmp_path))
    assert found
    for finding in found:
        assert finding.level is Level.NOTE
        assert finding.message.startswith("cannot be seen here: "), finding


BAD: list[tuple[str, Checkup, dict[str, Any], str, str]] = [
    # what is planted, the checkup, the machine, the level, words of the message
    (
        "powersave",
        cores.GOVERNOR,
        {"changes": {f"{CPU}/cpu2/cpufreq/scaling_governor": "powersave"}},
        "warn",
        "powersave on 1 of 4 cores",
    ),
    (
        "turbo",
        cores.BOOST,
        {"changes": {f"{CPU}/intel_pstate/no_turbo": "0"}},
        "note",
        "depends on heat",
    ),
    (
        "boost",
        cores.BOOST,
        {"changes": {f"{CPU}/intel_pstate/no_turbo": None, f"{CPU}/cpufreq/boost": "1"}},
        "note",
        "depends on heat",
    ),
    (
        "siblings",
        cores.SMT,
        {"changes": SIBLINGS},
        "note",
        "4 of 4 allowed cores are siblings",
    ),
    (
        "sibling of others",
        cores.SMT,
        {"changes": SIBLINGS, "cores": frozenset({0, 1})},
        "note",
        "sibling that others may use",
    ),
    (
        "guest without siblings",
        cores.SMT,
        {"changes": {"proc/cpuinfo": "flags : fpu hypervisor"}},
        "note",
        "cannot be seen here",
    ),
    (
        "guest",
        cores.VIRTUAL,
        {"changes": {"proc/cpuinfo": "flags : fpu hypervisor"}},
        "note",
        "a virtual machine",
    ),
    (
        "pinned",
        cores.AFFINITY,
        {"cores": frozenset({1, 2})},
        "note",
        "2 of 4 cores may be used (number 1-2)",
    ),
    (
        "waits",
        cores.CORE,
        {"noise": noise(wait_ns=30_000_000, cpu_ns=960_000_000)},
        "warn",
        "waited 3.0 %",
    ),
    (
        "loses its core",
        cores.CORE,
        {"noise": noise(cpu_ns=900_000_000)},
        "warn",
        "for 90 % of the time",
    ),
    (
        "hardly runs",
        cores.CORE,
        {"noise": noise(wait_ns=700_000_000, cpu_ns=300_000_000)},
        "fail",
        "for 30 % of the time",
    ),
    (
        "slow core",
        cores.CORE_SPEED,
        {"probes": (100_000,) * 200 + (150_000,) * 800},
        "warn",
        "took 1.50 times the fastest",
    ),
    (
        "slow at times",
        cores.CORE_SPEED,
        {"probes": (100_000,) * 700 + (150_000,) * 300},
        "note",
        "70 % of 1,000",
    ),
    (
        "few probes",
        cores.CORE_SPEED,
        {"probes": (100_000,) * 5},
        "note",
        "cannot be seen here",
    ),
    (
        "steal",
        cores.STEAL,
        {"second": {"proc/stat": ticks([1092] * 4, (0, 3, 0, 0), 1005)}},
        "warn",
        "took 3.0 % of the time of core 1",
    ),
    (
        "much steal",
        cores.STEAL,
        {"second": {"proc/stat": ticks([1070] * 4, (0, 0, 25, 0), 1005)}},
        "fail",
        "of the time of core 2",
    ),
    (
        "busy neighbour",
        cores.PROCESSES,
        {"second": {"proc/7/stat": stat(7, "make (all)", 60)}},
        "warn",
        "others use 0.50 cores: make (all) (7) 0.50",
    ),
    (
        "a little work",
        cores.PROCESSES,
        {"second": {"proc/7/stat": stat(7, "cron", 20)}},
        "note",
        "cron (7) 0.10",
    ),
    (
        "newcomer",
        cores.PROCESSES,
        {"second": {"proc/8/stat": stat(8, "cc1plus", 80)}},
        "warn",
        "cc1plus (8) 0.80",
    ),
    (
        "load",
        cores.LOAD,
        {"changes": {"proc/loadavg": "5.50 4 3 2/99 1"}},
        "warn",
        "5.50 tasks wanted 4 cores",
    ),
    (
        "some load",
        cores.LOAD,
        {"changes": {"proc/loadavg": "2.50 4 3 2/99 1"}},
        "note",
        "2.50 tasks",
    ),
    (
        "quota of 2",
        system.CPU_QUOTA,
        {"changes": {f"{GROUP}/cpu.max": "200000 100000"}},
        "warn",
        "CPU time of 2 cores is granted, on 4 allowed cores",
    ),
    (
        "quota of half",
        system.CPU_QUOTA,
        {"changes": {f"{GROUP}/cpu.max": "50000 100000"}},
        "fail",
        "even one thread will be held back",
    ),
    (
        "old quota",
        system.CPU_QUOTA,
        {"changes": {**VERSION_1, f"{OLD_GROUP}/cpu.cfs_quota_us": "150000"}},
        "warn",
        "CPU time of 1.5 cores",
    ),
    (
        "throttled now",
        system.THROTTLING,
        {"second": {f"{GROUP}/cpu.stat": "nr_periods 10\nnr_throttled 3"}},
        "fail",
        "held back 3 times while watched",
    ),
    (
        "throttled before",
        system.THROTTLING,
        {"changes": {f"{GROUP}/cpu.stat": "nr_periods 10\nnr_throttled 3"}},
        "note",
        "3 times since the group was made, 30 % of its periods",
    ),
    (
        "old throttling",
        system.THROTTLING,
        {
            "changes": VERSION_1,
            "second": {f"{OLD_GROUP}/cpu.stat": "nr_periods 12\nnr_throttled 1"},
        },
        "fail",
        "held back 1 time while watched",
    ),
    (
        "heat now",
        system.HEAT,
        {"second": {f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "4"}},
        "warn",
        "slowed down 4 times while watched",
    ),
    (
        "heat before",
        system.HEAT,
        {"changes": {f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "4"}},
        "note",
        "slowed down 4 times since its start",
    ),
    (
        "at its limit",
        system.HEAT,
        {"changes": {f"{ZONE}/temp": "96000"}},
        "warn",
        "96 degrees at the hottest: at its limit",
    ),
    (
        "little memory",
        system.MEMORY,
        {"changes": {"proc/meminfo": "MemAvailable: 524288 kB"}},
        "warn",
        "only 512 MiB can be had",
    ),
    (
        "memory limit",
        system.MEMORY,
        {"changes": {f"{GROUP}/memory.max": str(1 << 30), f"{GROUP}/memory.current": "0"}},
        "warn",
        "only 1.00 GiB can be had, within the control group's limit",
    ),
    (
        "swap in use",
        system.SWAP,
        {"changes": {"proc/meminfo": "SwapTotal: 4096 kB\nSwapFree: 1024 kB"}},
        "note",
        "3.00 MiB in use, none moved",
    ),
    (
        "a page swapped",
        system.SWAP,
        {"second": {"proc/vmstat": "pswpin 6\npswpout 5"}},
        "warn",
        "1 page swapped",
    ),
    (
        "swapping",
        system.SWAP,
        {"second": {"proc/vmstat": "pswpin 5\npswpout 1005"}},
        "fail",
        "1,000 pages were swapped",
    ),
    (
        "battery",
        system.POWER,
        {
            "changes": {
                "sys/class/power_supply/AC/online": "0",
                "sys/class/power_supply/BAT0/type": "Battery",
                "sys/class/power_supply/BAT0/status": "Not charging",
            }
        },
        "warn",
        "runs on battery",
    ),
    (
        "discharging",
        system.POWER,
        {
            "changes": {
                "sys/class/power_supply/BAT0/type": "Battery",
                "sys/class/power_supply/BAT0/status": "Discharging",
            }
        },
        "warn",
        "runs on battery",
    ),
    (
        "low power",
        system.POWER,
        {"changes": {"sys/firmware/acpi/platform_profile": "low-power"}},
        "warn",
        "profile is low-power",
    ),
    (
        "too many threads",
        system.THREADS,
        {"env": {"OMP_NUM_THREADS": "8"}},
        "warn",
        "more threads than can run at once (4): OMP_NUM_THREADS 8",
    ),
    (
        "torch knows no quota",
        system.THREADS,
        {"changes": {f"{GROUP}/cpu.max": "200000 100000"}},
        "warn",
        "(2): torch 4",
    ),
    (
        "not a number",
        system.THREADS,
        {"env": {"OMP_NUM_THREADS": "all"}},
        "warn",
        "OMP_NUM_THREADS=all is not a number",
    ),
    (
        "libraries differ",
        system.THREADS,
        {"env": {"OMP_NUM_THREADS": "1,2", "MKL_NUM_THREADS": "4"}},
        "warn",
        "libraries differ: OMP_NUM_THREADS=1, MKL_NUM_THREADS=4",
    ),
    (
        "blocking launches",
        system.VARIABLES,
        {"env": {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_LOGS": "0"}},
        "warn",
        "CUDA_LAUNCH_BLOCKING is set",
    ),
    (
        "debug malloc",
        system.VARIABLES,
        {"env": {"PYTHONMALLOC": "pymalloc_debug"}},
        "warn",
        "PYTHONMALLOC is set",
    ),
    (
        "fixed hashes",
        system.VARIABLES,
        {"env": {"PYTHONHASHSEED": "0"}},
        "note",
        "PYTHONHASHSEED=0",
    ),
    ("other allocator", system.ALLOCATOR, {"malloc": "jemalloc"}, "note", "jemalloc is loaded"),
    (
        "huge pages",
        system.HUGE_PAGES,
        {"changes": {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}},
        "note",
        "when it likes",
    ),
    (
        "fixed layout",
        system.ADDRESS_LAYOUT,
        {"changes": {"proc/sys/kernel/randomize_va_space": "0"}},
        "warn",
        "not random",
    ),
    (
        "half fixed",
        system.ADDRESS_LAYOUT,
        {"changes": {"proc/sys/kernel/randomize_va_space": "1"}},
        "warn",
        "partly random",
    ),
    (
        "setarch",
        system.ADDRESS_LAYOUT,
        {"changes": {"proc/self/personality": "00040000"}},
        "warn",
        "fixed for this process",
    ),
    (
        "slow clock",
        system.CLOCK,
        {"changes": {f"{CLOCK}/current_clocksource": "hpet"}},
        "warn",
        "hpet: each reading takes microseconds",
    ),
    (
        "counters closed",
        system.PERF_EVENTS,
        {"changes": {"proc/sys/kernel/perf_event_paranoid": "4"}},
        "note",
        "closed to you (level 4)",
    ),
]


@pytest.mark.parametrize(
    ("name", "checkup", "machine", "level", "words"),
    BAD,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_planted_fault_is_found(
    name: str, checkup: Checkup, machine: dict[str, Any], level: str, words: str, tmp_path: Path
) -> None:
    found = only(checkup, view(tmp_path, **machine))
    assert found.level.value == level, found
    assert words in found.message
    if found.level in (Level.WARN, Level.FAIL):
        assert found.remedy.endswith(".")


@pytest.mark.parametrize(("kind", "least"), [("cpu", 250_000), ("io", 150_000), ("memory", 20_000)])
def test_pressure_of_each_kind(kind: str, least: int, tmp_path: Path) -> None:
    second = {f"proc/pressure/{kind}": pressure(1000 + least)}
    found = {f.name: f.level for f in findings(cores.PRESSURE, view(tmp_path, second=second))}
    assert found.pop(f"pressure-{kind}") is Level.WARN
    assert set(found.values()) == {Level.OK}
    assert len(found) == 2


@pytest.mark.parametrize(("share", "level"), [(0.45, Level.WARN), (0.71, Level.FAIL)])
def test_a_machine_whose_tasks_wait_half_of_the_time_is_not_fit(
    share: float, level: Level, tmp_path: Path
) -> None:
    second = {"proc/pressure/cpu": pressure(1000 + round(share * 1e6))}
    found = {f.name: f for f in findings(cores.PRESSURE, view(tmp_path, second=second))}
    assert found["pressure-cpu"].level is level
    assert found["pressure-cpu"].figures["share"] == pytest.approx(share, abs=0.01)


def test_work_of_processes_that_are_not_listed_is_missed_by_no_one(tmp_path: Path) -> None:
    found = findings(cores.PROCESSES, view(tmp_path, second={"proc/stat": HIDDEN_LOAD}))
    assert [f.level for f in found] == [Level.OK, Level.WARN]
    assert "cannot be seen from here" in found[1].message
    # The cores were busy for 0.5 + 1.0 + 0.345 + 0.345 seconds; one of them is our own work.
    assert found[1].figures["hidden_cores"] == pytest.approx(1.19, abs=0.02)


def test_a_process_id_used_again_is_another_process(tmp_path: Path) -> None:
    changes = {"proc/7/stat": stat(7, "old", 100_000, started=1)}
    second = {"proc/7/stat": stat(7, "new", 3, started=2)}
    found = findings(cores.PROCESSES, view(tmp_path, changes, second))
    assert [f.level for f in found] == [Level.OK]
    assert found[0].figures["cores"] == pytest.approx(0.03)


def test_a_quota_lowers_the_threads_that_are_advised(tmp_path: Path) -> None:
    found = only(system.CPU_QUOTA, view(tmp_path, {f"{GROUP}/cpu.max": "250000 100000"}))
    (line,) = found.fixes
    assert split_fix(line)[0] == "export OMP_NUM_THREADS=2"
    assert "--threads 2" in found.remedy


def test_every_fix_says_what_it_does_and_how_to_undo_it(tmp_path: Path) -> None:
    held = []
    for number, (_, checkup, machine, _, _) in enumerate(BAD):
        found = only(checkup, view(tmp_path / str(number), **machine))
        held += [split_fix(line) for line in found.fixes]
    assert len(held) > 10
    for command, does, undo in held:
        assert command
        assert does
        assert undo
    by_command = {command: undo for command, _, undo in held}
    governor = by_command["sudo cpupower frequency-set -g performance"]
    assert governor == "sudo cpupower frequency-set -g powersave"
    assert by_command["taskset -c 0-1 torchstone bench ..."] == "not needed"
    assert f"echo tsc | sudo tee /{CLOCK}/current_clocksource" in by_command
    assert by_command["ps -o pid,user,etime,pcpu,args -p 7"] == "not needed"


def test_a_preloaded_library_that_is_not_there(tmp_path: Path) -> None:
    lost = view(tmp_path, env={"LD_PRELOAD": "/usr/lib/libgone.so"})
    assert [f.level for f in findings(system.ALLOCATOR, lost)] == [Level.WARN, Level.NOTE]
    there = view(
        tmp_path, {"usr/lib/libgone.so": "here"}, env={"LD_PRELOAD": "/usr/lib/libgone.so"}
    )
    assert [f.level for f in findings(system.ALLOCATOR, there)] == [Level.NOTE]


def test_counters_of_the_processor_may_be_missing(tmp_path: Path) -> None:
    seen = view(tmp_path)
    (tmp_path / "sys/bus/event_source/devices/cpu/type").unlink()
    (tmp_path / "sys/bus/event_source/devices/cpu").rmdir()
    found = only(system.PERF_EVENTS, seen)
    assert found.level is Level.NOTE
    assert "no cycles" in found.message


def test_no_torch_is_said(tmp_path: Path) -> None:
    found = only(system.THREADS, view(tmp_path, torch={}))
    assert found.level is Level.OK
    assert "torch is not installed here" in found.message
