"""Real networks with small inputs, each recorded once in a run of the suite, whichever process needs it first."""

import math
from pathlib import Path

import pytest
from filelock import FileLock

import rooflines
from rooflines import Analysis, Run
from rooflines.pipeline import recording
from rooflines.profiler.options import PointOptions
from rooflines.profiler.record.passes import TRACED_MIN_STEPS
from tests.commands import write_ceilings

OWN = ("deeplabv3", "faster_rcnn", "bert", "gpt2", "gpt2_decoding", "lstm")  # in models.py
IMAGE_NETWORKS = (
    "resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "vit_b_16", "convnext_tiny", "efficientnet_b0", "swin_t",
)  # fmt: skip
IMAGE_SIZE, BATCH = 64, 2
# A network of each kind. A training step has what an inference has and more; `make test-all` takes them all.
QUICK = {
    ("deeplabv3", "inference"), ("bert", "inference"), ("gpt2_decoding", "inference"),
    ("mobilenet_v2", "training"), ("gpt2", "training"), ("lstm", "training"),
}  # fmt: skip
CASES = [
    pytest.param(name, mode, marks=() if (name, mode) in QUICK else pytest.mark.slow)
    for name in (*IMAGE_NETWORKS, *OWN)
    for mode in ("inference", "training")
    if (name, mode) != ("gpt2_decoding", "training")
]


def full_name(name: str) -> str:
    """The name by which ``rooflines profile`` knows a network of this page."""
    return f"{Path(__file__).with_name('models.py')}:{name}" if name in OWN else name


def options(name: str, mode: str) -> PointOptions:
    """How every network is run: two images of 64 x 64; our own have inputs of their own."""
    size = {} if name in OWN else {"image_size": IMAGE_SIZE, "batch_size": BATCH}
    return PointOptions(mode=mode, device="cpu", **size)


class Recordings:
    """Runs below ``folder``, which the processes of a test run share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._analyses: dict[tuple[str, str], Analysis] = {}

    def run(self, name: str, mode: str) -> Run:
        """The run of this network, with its traced steps."""
        directory = self.folder / f"{name}-{mode}"
        with FileLock(f"{directory}.lock"):
            if not directory.exists():
                asked = options(name, mode)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(recording, "TRACED_STEPS", TRACED_MIN_STEPS)  # more say nothing more about coverage
                    rooflines.profile(
                        full_name(name), mode=mode, device="cpu", image_size=asked.image_size, batch_size=asked.batch_size, steps=1,
                        warmup=1, formats=(), ceilings=str(write_ceilings(self.folder)), output=directory,
                    )  # fmt: skip
        return rooflines.load(directory)

    def analysis(self, name: str, mode: str) -> Analysis:
        """The analysis of that run, one a process."""
        if (name, mode) not in self._analyses:
            self._analyses[name, mode] = rooflines.analyze(self.run(name, mode))
        return self._analyses[name, mode]


def check_sums(analysis):
    """Operators + unmodeled + idle = span, and every total is the sum of its rows."""
    operators, timeline = analysis["operators"], analysis["timeline"]
    parts = sum(row["time_s"] for row in operators) + sum(item["time_s"] for item in analysis["coverage"]["unmodeled"])
    assert math.isclose(parts + timeline["idle_s"] - timeline["overlap_s"], timeline["span_s"], rel_tol=1e-3)
    for field in ("flops", "matrix_flops", "bytes"):
        assert sum(row[field] for row in operators) == analysis["totals"][field]
