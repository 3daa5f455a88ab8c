"""Make the pictures of ``docs/gallery.md`` from real runs on this machine, and from the recorded runs and public traces of the tests.

Each picture is a page in Chromium. The page of the first one is ``docs/examples/report.html``. ``tests/reports/test_gallery.py`` says
which pictures of recorded data show another page than the product makes now. The sweep and the study take most of the five minutes.
Needs torchvision, Playwright and Chromium.

    python benchmarks/gallery.py [--only training,timeline] [--runs DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES, PAGE = ROOT / "docs" / "images", ROOT / "docs" / "gallery.md"
DATA = ROOT / "tests" / "data"
TRACES = DATA / "traces"
EXAMPLE, SHOWN = ROOT / "docs" / "examples" / "report.html", IMAGES / "shown.json"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WIDTH, HEIGHT = 1280, 1000
COLORS = 256
HEAD = """# Gallery

Pages of real runs on a two-core machine and of [public traces](../tests/data/traces/README.md), made by
[`benchmarks/gallery.py`](../benchmarks/gallery.py).
"""


class Picture(NamedTuple):
    """A picture: its name and title, the commands that make its page in a folder, the page there, and the view
    that it shows, the top of the page if empty."""

    name: str
    title: str
    commands: tuple[str, ...]
    page: str
    view: str = ""


INFERENCE = "profile --model resnet50 --batch-size 4 --formats html --output inference"
TRAINING = "profile --model resnet18 --mode training --batch-size 8 --formats html --output training"
H100 = f"report {DATA}/gpu_runs/resnet18-inference-compiled --formats html --output h100"
GPU = f"report {TRACES}/bert-small_h100_inference.json.gz --formats html --output gpu"
BF16 = f"{TRAINING}-bf16 --precision amp-bf16"
RANKS = f"report {TRACES}/dlrm_8ranks --formats html --output ranks"
GENERATION = "profile --model hf:gpt2 --mode generate --prompt-length 64 --new-tokens 32 --formats html --output generation"
PREDICTION = (
    "predict --model hf:gpt2 --mode generate --batch-size 8 --prompt-length 512 --new-tokens 128 --precision bf16 --like public "
    "--device 'NVIDIA H200' --device 'RTX 4090' --device 'AMD Instinct MI300X' --format html --output prediction"
)
HERE, THERE = "inference/report.html", "gpu/report.html"
PICTURES = (
    Picture("h100", "ResNet-18 on an H100", (H100,), "h100/report.html"),
    Picture("inference", "Inference of ResNet-50 on a CPU: what limits it and what to try", (INFERENCE,), HERE),
    Picture("roofline", "Its operators on the roofline", (INFERENCE,), HERE, "roofline"),
    Picture("modules", "The modules of the network by time", (INFERENCE,), HERE, "modules"),
    Picture("training", "Training of ResNet-18", (TRAINING,), "training/report.html"),
    Picture("memory", "Its memory over the step, by what it holds", (TRAINING,), "training/report.html", "memory"),
    Picture("gpu", "A public trace of BERT on an H100", (GPU,), THERE),
    Picture("timeline", "Its timeline", (GPU,), THERE, "timeline"),
    Picture("kernels", "Its kernels", (GPU,), THERE, "kernels"),
    Picture("ranks", "Eight ranks of DLRM", (RANKS,), "ranks/report.html"),
    Picture("generation", "Text from GPT-2: prefill and decode apart", (GENERATION,), "generation/report.html", "generation"),
    Picture("prediction", "The same model predicted on three GPUs", (PREDICTION,), "prediction/report.html"),
    Picture(
        "comparison", "The training in fp32 and in bf16, compared",
        (TRAINING, BF16, "compare training training-bf16 --output compared/"), "compared/report.html",
    ),
    Picture(
        "sweep", "A sweep over batch sizes",
        ("sweep --model resnet18 --batch-size 1,4,16 --repeats 1 --formats html --output sweep",), "sweep/report.html",
    ),
    Picture(
        "study", "A published study, reproduced",
        ("study from-scratch --quick --formats html --output study",), "study/report.html",
    ),
)  # fmt: skip


def recorded() -> dict[str, Path]:
    """The data of the pictures that need no run."""
    reports = {one.name: shlex.split(one.commands[0]) for one in PICTURES if one.commands[0].startswith("report ")}
    return {name: Path(words[1]) for name, words in reports.items()}


def words_of(page: str) -> str:
    """A hash of what a page says: of its text without scripts, styles, and what differs from one place and day to another."""
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = " ".join(re.sub(r"<[^>]*>|rooflines \d\S*|\d{4}-\d\d-\d\d( \d\d:\d\d)?", " ", text).split())
    return hashlib.sha256(re.sub("Command .*? Schema", "Schema", text).encode()).hexdigest()[:16]


def run(commands: Iterable[str], runs: Path, done: set[str]) -> None:
    """Run those of ``commands`` that are not ``done``."""
    for command in commands:
        if command not in done:
            print(f"rooflines {command}", flush=True)
            subprocess.run([sys.executable, "-m", "rooflines", *shlex.split(command)], check=True, cwd=runs, capture_output=True)
            done.add(command)


def shoot(browser: Browser, page: Path, view: str) -> bytes:
    """A view of a page as a PNG of few colors."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    tab.goto(f"{page.as_uri()}{f'#{view}' if view else ''}")
    tab.wait_for_timeout(800)
    if view:
        tab.add_style_tag(content="nav { display: none }")
        box = tab.locator(f"#{view}").bounding_box()
        assert box is not None
        top, height = box["y"] - 10 + tab.evaluate("scrollY"), min(box["height"] + 30, HEIGHT)
        content = tab.screenshot(full_page=True, clip={"x": 0, "y": top, "width": WIDTH, "height": height})
    else:
        content = tab.screenshot()
    tab.close()
    buffer = io.BytesIO()
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    # Other methods merge the colors of small points.
    few = picture.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of pictures, separated by commas")
    parser.add_argument("--runs", type=Path, help="folder of the runs; a temporary one without it")
    arguments = parser.parse_args()
    chosen = [one for one in PICTURES if not arguments.only or one.name in arguments.only.split(",")]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs, done = (arguments.runs or Path(folder)).resolve(), set[str]()
        runs.mkdir(parents=True, exist_ok=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for picture in chosen:
            run(picture.commands, runs, done)
            (IMAGES / f"{picture.name}.png").write_bytes(shoot(browser, runs / picture.page, picture.view))
            if picture.name in recorded():
                page = (runs / picture.page).read_text(encoding="utf-8")
                shown = json.loads(SHOWN.read_text()) if SHOWN.exists() else {}
                SHOWN.write_text(json.dumps({**shown, picture.name: words_of(page)}, indent=1, sort_keys=True) + "\n")
                if picture is PICTURES[0]:
                    EXAMPLE.parent.mkdir(exist_ok=True)
                    EXAMPLE.write_text(page, encoding="utf-8")
        browser.close()
    parts = [f"## {one.title}\n\n![{one.title}](images/{one.name}.png)\n" for one in PICTURES]
    PAGE.write_text("\n".join((HEAD, *parts)), encoding="utf-8")


if __name__ == "__main__":
    main()
