"""The figures that no change of shape may change: analyses of every trace and run of ``tests/data``, counts of torchvision's networks,
predictions for data sheets, and the pages of the samples.

``golden.json`` holds a hash of each part of each. ``python -m tests.golden`` writes it again, which is how a change of figures is
approved; ``python -m tests.golden compare REVISION [ITEM]`` computes the same with the package of another revision and prints the first
differences, by their place in the JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
STORE = Path(__file__).with_name("golden.json")
# Digits of a number that count: the last ones depend on how a processor adds up.
DIGITS = 6
# What differs from one place or version to the next.
LEFT_OUT = {"created", "rooflines", "command"}
SHEETS = (
    "H100 SXM5 80GB", "A100 SXM4 80GB", "RTX 4090", "RTX 3090", "T4", "L4", "L40S", "V100 SXM2 16GB", "H200 SXM5", "B200", "MI300X",
    "Instinct MI250X (one GCD)", "RTX A6000", "A10G", "GTX 1080 Ti",
)  # fmt: skip
FIRST_DIFFERENCES = 5


def items(*, slow: bool = True) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every item by name, and what computes it; ``slow`` ones are the counts and predictions."""
    import rooflines

    for path in sorted((DATA / "traces").rglob("*.json.gz")):
        yield f"trace {path.relative_to(DATA / 'traces')}", lambda path=path: rooflines.analyze(path).to_dict()
    for path in sorted(one for one in (DATA / "gpu_runs").iterdir() if one.is_dir()):
        yield f"run {path.name}", lambda path=path: rooflines.analyze(path).to_dict()
    yield "page in the terminal", _in_terminal
    if slow:
        for name in _networks():
            yield f"count {name}", lambda name=name: _counted(name)
        for name, mode in (("resnet50", "training"), ("vit_b_16", "inference"), ("mobilenet_v2", "inference")):
            yield f"predict {name}", lambda name=name, mode=mode: rooflines.predict(name, devices=SHEETS, mode=mode).to_dict()


def _in_terminal() -> dict[str, Any]:
    from rooflines.reports.page.run import page
    from tests.printing import in_terminal
    from tests.samples import analysis

    return {"lines": in_terminal(page(analysis()), width=100).splitlines()}


def _networks() -> list[str]:
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)


def _counted(name: str) -> dict[str, Any]:
    """The calls of a network of torchvision, which has no values."""
    import torch
    import torchvision

    import rooflines

    size = 299 if name == "inception_v3" else 224
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    # RegNets compute their widths with tensors.
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        network = torchvision.models.get_model(name, weights=None, **options).eval()
        found = rooflines.count(network, torch.empty(2, 3, size, size))
    return {"operators": json.loads(found.to_dataframe().to_json(orient="records"))}


def plain(value: Any) -> Any:
    """``value`` without what differs between places, its numbers rounded."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in LEFT_OUT}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def hashes(value: dict[str, Any]) -> dict[str, str]:
    """A short hash of each part of an item."""
    parts = {name: json.dumps(each, sort_keys=True) for name, each in plain(value).items()}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in parts.items()}


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The places in which two values differ, with both."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from differences(before.get(name), after.get(name), f"{where}/{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}/{at}")
    elif before != after:
        yield f"{where}: {str(before)[:80]} -> {str(after)[:80]}"


def computed(chosen: str = "", *, slow: bool = True) -> dict[str, Any]:
    """The items whose names contain ``chosen``."""
    return {name: plain(compute()) for name, compute in items(slow=slow) if chosen in name}


def compare(revision: str, chosen: str) -> int:
    """Print the first differences of the items from those of the package at ``revision``."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", folder, revision], check=True, capture_output=True)
        try:
            # That package computes the items of this revision.
            code = f"import json, sys, rooflines; sys.path.insert(0, {str(ROOT)!r}); from tests import golden; "
            code += f"print(json.dumps(golden.computed({chosen!r})))"
            environment = {**os.environ, "PYTHONPATH": folder}
            done = subprocess.run(
                [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
            )
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", folder], check=True, capture_output=True)
    before, after, number = json.loads(done.stdout.splitlines()[-1]), json.loads(json.dumps(computed(chosen))), 0
    for name in {**before, **after}:
        found = list(differences(before.get(name), after.get(name)))
        number += len(found)
        for text in found[:FIRST_DIFFERENCES]:
            print(f"{name} {text}")
        if len(found) > FIRST_DIFFERENCES:
            print(f"{name}: {len(found) - FIRST_DIFFERENCES} more")
    print(f"{number} differences in {len(after)} items")
    return 1 if number else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        sys.exit(compare(sys.argv[2], " ".join(sys.argv[3:])))
    STORE.write_text(json.dumps({name: hashes(value) for name, value in computed().items()}, indent=1) + "\n")
