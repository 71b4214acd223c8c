"""Pictures of every page, in light and dark, wide and on a phone, to be looked at by people.

    python -m tests.web.screenshots OUT/ [NAME ...]

The runs are made up, and say so.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.browsing import ARGUMENTS, CHROMIUM
from tests.show import synthetic_profile, synthetic_result
from tests.show.synthetic_run import bad, key, ok
from tests.web import stored
from torchstone.records import CaseKey, CaseMetrics, GitState, Level, Outcome
from torchstone.store import Store, heartbeat, open_store

LABEL = "made up"
SUITES = {
    "huggingface": (
        *("AlbertForMaskedLM", "BartForCausalLM", "BertForMaskedLM", "DistilBertForMaskedLM"),
        *("ElectraForCausalLM", "GPT2ForSequenceClassification", "GoogleFnet", "OPTForCausalLM"),
        *("RobertaForCausalLM", "T5Small"),
    ),
    "timm": (
        *("beit_base_patch16_224", "convnextv2_nano", "deit_tiny_patch16_224", "efficientnet_b0"),
        *(
            "ghostnet_100",
            "mobilenetv3_large_100",
            "resnet18",
            "resnet50",
            "swin_tiny",
            "vit_small",
        ),
    ),
    "torchbench": (
        *("dcgan", "hf_Whisper", "nanogpt", "pytorch_unet", "resnext50_32x4d", "soft_actor_critic"),
        *("squeezenet1_1", "vgg16"),
    ),
}
VARIANTS = {"inductor": 0.30, "inductor+dynamic": 0.24, "aot_eager": 0.02}
"""With the log of the speed-up that each has on average."""
NIGHTS = 21
LAST = NIGHTS - 1
BETTER_FROM = 16
SLOWED, BROKEN, TIMED_OUT = "BertForMaskedLM", "GoogleFnet", "dcgan"
BROKEN_FROM = 17
FIRST = datetime(2026, 10, 26, 2, 0, tzinfo=timezone.utc)
WIDTHS = {"wide": 1280, "phone": 390}
SCHEMES = ("light", "dark")
MODEL = "/case?suite=huggingface&model=AlbertForMaskedLM&mode=inference&variant=inductor&range=30"
PAGES = {
    "landing": "/?range=30",
    "landing-training": "/?mode=training&range=30",
    "suite": "/suite?suite=huggingface&variant=inductor",
    "suite-all": "/suite?suite=torchbench&mode=all&variant=all",
    "case": MODEL,
    "case-failing": f"/case?suite=huggingface&model={BROKEN}&mode=training&variant=inductor",
    "compare": "/compare",
    "two-builds": "/compare?base=other-torch",
    "failures": "/failures",
    "runs": "/runs",
    "run": "/runs/now",
    "machines": "/machines",
    "machine": f"/machines/{stored.MACHINE}",
    "profiles": "/profiles",
    "profile": "/profiles/prof1",
    "views": "/profiles/prof1/view",
    "result": f"/result/r{LAST:02d}",
    "error": "/suite?suite=nope",
}


@dataclass(frozen=True)
class Shot:
    """One picture to be taken."""

    page: str
    scheme: str
    width: str

    @property
    def name(self) -> str:
        return f"{self.page}-{self.width}-{self.scheme}.png"


def keys() -> list[CaseKey]:
    return [
        key(model, suite=suite, mode=mode, variant=variant)
        for suite, models in SUITES.items()
        for model in models
        for mode in stored.MODES
        for variant in VARIANTS
    ]


def metrics_of(one: CaseKey, night: int) -> CaseMetrics:
    """Steady but for one change to the better, one to the worse, and two that break."""
    training = one.mode == "training"
    if one.model == BROKEN and training and one.variant != "aot_eager" and night >= BROKEN_FROM:
        return bad(one, Outcome.CRASH, "first call: the worker died of SIGSEGV")
    if one.model == TIMED_OUT and one.variant == "inductor+dynamic" and night == LAST:
        return bad(one, Outcome.TIMEOUT, "timed turn: no answer for 60 s")
    if one.model == "soft_actor_critic" and training:
        return CaseMetrics(one, Outcome.NOT_SUPPORTED, "it has no training step")
    own, rng = random.Random(one.model + one.mode), random.Random(f"{one.name} {night}")
    log = VARIANTS[one.variant] + own.uniform(-0.18, 0.25) + rng.gauss(0, 0.004)
    log += 0.035 if one.variant == "inductor" and night >= BETTER_FROM else 0.0
    log -= 0.13 if one.model == SLOWED and one.variant == "inductor" and night == LAST else 0.0
    base = own.uniform(3e6, 9e7) * math.exp(rng.gauss(0, 0.006))
    cold = 2e8 if one.variant == "aot_eager" else own.uniform(8e9, 3e10)
    cold *= 1.35 if one.suite == "timm" and night == LAST else 1.0
    peak = own.uniform(150, 900) * 2**20
    changes: dict[str, Any] = {
        "base_ns": base,
        "new_ns": base / math.exp(log),
        "compile_cold_ns": int(cold * math.exp(rng.gauss(0, 0.02))),
        "compile_warm_ns": int(0.12 * cold * math.exp(rng.gauss(0, 0.02))),
        "base_tensor_bytes": int(peak),
        "new_tensor_bytes": int(peak * own.uniform(0.85, 1.02) * math.exp(rng.gauss(0, 0.004))),
        "graph_breaks": own.choice((0, 0, 0, 2)) if one.variant != "aot_eager" else 0,
        "result_id": "",
    }
    if own.random() < 0.15:
        changes |= {"worst_check": Level.WARN, "checks": ("noise",)}
    return ok(one, math.exp(log), math.exp(log) * 0.009, **changes)


def commit(night: int) -> str:
    return hashlib.sha1(f"made up {night}".encode(), usedforsecurity=False).hexdigest()


def add_night(store: Store, night: int, until: int | None = None, **changes: Any) -> None:
    """A run; the first of its cases has a result with samples."""
    cases = keys()
    run = stored.make_run(
        night,
        cases,
        **{
            "id": f"night{night:02d}",
            "created": (FIRST + timedelta(days=night)).isoformat(),
            "label": LABEL,
            "git": GitState(commit(night), "main", False),
            "command": ("torchstone", "run", *SUITES, "--variants", ",".join(VARIANTS)),
            **changes,
        },
    )
    store.begin_run(run)
    rest: Sequence[CaseKey] = cases[:until]
    if until is None and not changes:
        made = replace(synthetic_result.two_faster(), id=f"r{night:02d}", kind="case")
        first = replace(metrics_of(cases[0], night), result_id=made.id)
        store.add_cases(run.id, replace(made, created=run.created), [(0, first)])
        rest = cases[1:]
    start = len(cases) - len(rest) if until is None else 0
    ended = [metrics_of(one, night) for one in rest]
    store.add_cases(run.id, None, list(enumerate(ended, start)))


def make_database(path: Path) -> Path:
    """Three weeks of nights, one run elsewhere, and one that is measured now."""
    with open_store(str(path)) as store:
        for night in range(NIGHTS):
            add_night(store, night)
        add_night(store, 7, id="other-torch", torch="2.12.1+cpu", label="older torch")
        add_night(store, NIGHTS, until=61, id="now")
        stored.add_machine(store)
        stored.add_ledgers(store, synthetic_result.two_faster())
        profile = replace(synthetic_profile.full(), id="prof1")
        store.save_profile(profile, f"r{LAST:02d}")
    return path


def shots(names: Sequence[str]) -> Iterator[Shot]:
    for page in names or PAGES:
        for scheme in SCHEMES:
            for width in WIDTHS:
                yield Shot(page, scheme, width)


def take(browser: Any, address: str, out: Path, names: Sequence[str] = ()) -> list[Path]:
    """Every picture, whole pages, into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    taken = []
    for shot in shots(names):
        context = browser.new_context(
            viewport={"width": WIDTHS[shot.width], "height": 800},
            color_scheme=shot.scheme,
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.goto(address + PAGES[shot.page])
        page.wait_for_timeout(150)  # scripts come after the page
        path = out / shot.name
        page.screenshot(path=str(path), full_page=True)
        context.close()
        taken.append(path)
    return taken


def main() -> None:
    from playwright.sync_api import sync_playwright

    from tests.web.conftest import serving

    out, names = Path(sys.argv[1]), sys.argv[2:]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        path = make_database(folder / "example.db")
        alive = stack.enter_context(heartbeat.start_heartbeat(path, "now"))
        alive.now(keys()[61].name, 61, len(keys()))
        address = stack.enter_context(serving(path))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        stack.callback(browser.close)
        for path in take(browser, address, out, names):
            print(path)


if __name__ == "__main__":
    main()
