"""Which tables, figures, modes and metrics of the five papers the studies show: ``benchmarks/results/study_coverage.md``.

``python benchmarks/study_coverage.py`` reads ``benchmarks/study_coverage.csv``: an item of a paper, the sections, tables or figures of
the study's page that show it, what it needs that not every machine has, and what is missing. It refuses a name that the page has not,
and replaces the table between ``<!-- coverage -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from rooflines_studies.study import read_study

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "benchmarks" / "results" / "study_coverage.md"
BLOCK = re.compile(r"(<!-- coverage -->\n).*?(<!-- end -->)", re.DOTALL)


def names_of(study: str) -> set[str]:
    """The names of sections, tables and figures in the file and the modules of a study, and of those from the sweeps' page."""
    folder = ROOT / "rooflines_studies" / study.replace("-", "_")
    modules = [*folder.glob("*.py"), *folder.parent.glob("*_page.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    file = read_study(folder)
    listed = (*file.sections, *(table.name for table in file.tables))
    return {*listed, *re.findall(r'name="([\w-]+)"', text), *re.findall(r'\("([\w-]+)", ', text)}


def rows() -> list[dict[str, str]]:
    """The rows of the file; raises ValueError for one whose page does not have what it names."""
    with (ROOT / "benchmarks" / "study_coverage.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    for row in found:
        unknown = set(row["shown"].split(";")) - names_of(row["study"])
        if unknown:
            raise ValueError(f"{row['study']}: {row['item']} names {', '.join(sorted(unknown))}, which its page has not")
    return found


def table() -> str:
    """The table in Markdown: a line for the items of a study with the same answer."""
    items: dict[tuple[str, str], list[str]] = {}
    for row in rows():
        state = f"partly: {row['missing']}" if row["missing"] else f"yes, with {row['needs']}" if row["needs"] else "yes"
        items.setdefault((row["study"], state), []).append(row["item"])
    lines = ["| study | of the paper | here |", "|---|---|---|"]
    lines += [f"| `{study}` | {'; '.join(names)} | {state} |" for (study, state), names in items.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Replace the table in the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + table() + found[2], text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
