"""What the rounds of a study decide: a ratio is a finding if its interval excludes 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rooflines.sweeps.records import Estimate
from rooflines.units import significant


def decided(comparisons: Iterable[tuple[str, Estimate, str, Estimate]], takes: str, long: str) -> Iterator[str]:
    """Yield ``A takes 2.00 (1.90 to 2.10) times as long as B`` for all A and B that differ, and one sentence that names the others."""
    undecided = []
    for name, value, other, base in comparisons:
        ratio = value.over(base)
        if ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high:
            undecided.append(f"{name} compared with {other}")
        else:
            interval = f"({significant(ratio.low)} to {significant(ratio.high)})"
            yield f"{name} {takes} {significant(ratio.value)} {interval} times as {long} as {other}."
    if undecided:
        yield f"The rounds do not decide: {'; '.join(undecided)}. At least three rounds (--repeats) on an idle machine can."
