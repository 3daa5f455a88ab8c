"""Three answers on the first screen of a page: what limits the run, what to try first, and how much it could give.

Reads five public traces of the tests and writes the answers on their pages to ``results/first_screen.md``.

    python benchmarks/first_screen.py
"""

from __future__ import annotations

from pathlib import Path

import rooflines
from rooflines.reports.document import Findings
from rooflines.reports.page.run import page

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "first_screen.md"
TRACES = HERE.parent / "tests" / "data" / "traces"
NAMES = (
    "bert-small_h100_inference", "resnet50_v100_training_2021_schema", "dlrm_a100_training", "vit-b16_mi300x_inference",
    "toy_mi250_training",
)  # fmt: skip


def main() -> None:
    lines = ["# Three answers of the first screen", "", "Made by `benchmarks/first_screen.py` from the pages of public traces."]
    for name in NAMES:
        report = page(rooflines.analyze(TRACES / f"{name}.json.gz"))
        first = next((block.items[0] for block in report.blocks() if isinstance(block, Findings) and block.items), None)
        lines += ["", f"## {name}", "", f"- What limits it: {report.verdict}"]
        if first is None:
            lines += ["- What to try first: the page has no advice."]
        else:
            lines += [f"- What to try first: {first.title}: {first.suggestion}", f"- What it could give: {first.saves}"]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
