"""Verdicts and recommendations for published traces, and the number of different suggestions.

``python benchmarks/verdicts.py DIR [DIR ...]`` analyzes every ``*.json`` and ``*.json.gz`` in the directories, and every folder with
the traces of several ranks. It replaces the blocks of ``benchmarks/results/verdicts.md`` between ``<!-- tool: NAME -->`` and ``<!-- end
-->``, and the counts between ``<!-- counts -->`` and ``<!-- end -->``; NAME is the file's name without its ending.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections import Counter
from pathlib import Path

import rooflines
from rooflines.reports.page.ranks import sentences
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.ranks.records import RankAnalysis
from rooflines.units import percent, seconds

ENDINGS = (".json.gz", ".json")
WIDTH = 136
PAGE = Path(__file__).parent / "results" / "verdicts.md"


def traces_in(directories: list[Path]) -> dict[str, Path | list[str]]:
    """The traces of the directories by name; a folder stands for the ranks in it."""
    found: dict[str, Path | list[str]] = {}
    for path in sorted(path for directory in directories for path in directory.iterdir()):
        ending = next((ending for ending in ENDINGS if path.name.endswith(ending)), None)
        if path.is_dir():
            found[path.name] = sorted(str(rank) for rank in path.glob("*.json*"))
        elif ending is not None:
            found[path.name.removesuffix(ending).removesuffix(".pt.trace")] = path
    return found


def block(analysis: Analysis | RankAnalysis) -> str:
    """The verdict, the division of the time and the advice as a Markdown list."""
    per = "a step" if per_of(analysis) == "step" else "in the trace"
    bounds = {name: time_s for name, time_s in (analysis.bound_breakdown or {}).items() if time_s > 0}
    whole = sum(bounds.values())
    verdict = analysis.verdict if isinstance(analysis, Analysis) else " ".join(sentences(analysis))
    lines = [wrapped(verdict, "> ", "> "), ""]
    if whole > 0:
        shares = ", ".join(f"{name} {percent(time_s / whole)}" for name, time_s in bounds.items())
        lines.append(wrapped(f"{seconds(whole)} {per}: {shares}", "- ", "  "))
    for finding in analysis.findings:
        saves = f" (up to {seconds(finding.saves_s)})" if finding.saves_s > 0 else ""
        lines.append(wrapped(f"**{finding.title}**{saves}: {finding.suggestion}", "- ", "  "))
    if not analysis.findings:
        lines.append("- no advice")
    return "\n".join(lines)


def per_of(analysis: Analysis | RankAnalysis) -> str:
    return analysis.basis.per if isinstance(analysis, Analysis) else analysis.per


def wrapped(text: str, first: str, rest: str) -> str:
    """A paragraph of Markdown whose first line begins with ``first`` and all others with ``rest``."""
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)


def counts(analyses: dict[str, Analysis | RankAnalysis]) -> str:
    """How many pieces of advice there are, and how many different suggestions among them."""
    suggestions = Counter(finding.suggestion for analysis in analyses.values() for finding in analysis.findings)
    return f"{len(analyses)} traces, {suggestions.total()} pieces of advice, {len(suggestions)} different suggestions"


def filled(page: str, blocks: dict[str, str]) -> str:
    """``page`` with the text between each mark and the next ``<!-- end -->`` replaced by the block of that name, where there is one."""

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n{blocks[name]}\n<!-- end -->" if name in blocks else found[0]

    return re.sub(r"<!-- (counts|tool: [^\n]*?) -->\n.*?<!-- end -->", replaced, page, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path, help="directories with traces")
    options = parser.parse_args()
    analyses = {name: rooflines.analyze(source) for name, source in traces_in(options.directories).items()}
    blocks = {f"tool: {name}": block(analysis) for name, analysis in analyses.items()} | {"counts": counts(analyses)}
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print(counts(analyses))


if __name__ == "__main__":
    main()
