"""Several ranks as shown: in 80 columns, on a page, as CSV; what a trace has named stays text everywhere."""

import csv
import io
import re

import pytest
from msgspec.structs import replace

from rooflines.reports.page.ranks import bars, page
from rooflines.reports.render.html import render
from rooflines.reports.words.text import struct_csv
from rooflines.roofline.ranks.records import MatchedRow, RankAnalysis, RankRow, Spread, Straggler, UnmatchedRow, Waiting
from tests.printing import HtmlPage, in_terminal

SCRIPT = "<script>alert(1)</script>"


def rank(number, **more):
    given = {
        "source": f"rank{number}.json.gz", "span_s": 0.02, "busy_s": 0.015, "idle_s": 0.005, "compute_s": 0.01,
        "communication_s": 0.006, "exposed_communication_s": 0.004, "memcpy_s": 0.001, "hidden_fraction": 1 / 3,
        "collectives": 4, "matched": 4, "waited_s": 0.003,
    }  # fmt: skip
    return RankRow(rank=number, **{**given, **more})


def sample(count=2, group="0", **more):
    even = Spread(min=0.01, max=0.012, mean=0.011, min_rank=0, max_rank=1, imbalance=0.012 / 0.011 - 1)
    names = ("span_s", "busy_s", "idle_s", "compute_s", "communication_s", "exposed_communication_s", "memcpy_s")
    ranks = tuple(rank(number) for number in range(count - 1))
    return RankAnalysis(
        **{
            "world_size": count,
            "device_name": "NVIDIA H100",
            "ranks": (*ranks, rank(count - 1, waited_s=0.0, times_last=4, caused_wait_s=0.003)),
            "spread": dict.fromkeys(names, even),
            "waiting": Waiting(transfer_s=0.001, at_start_s=0.0005, in_steps_s=0.0025),
            "straggler": Straggler(rank=count - 1, times_last=4, of=4, waited_s=0.003, share=1.0),
            "collectives": (
                MatchedRow(
                    kind="allreduce", count=4, ranks=count, matched_by="order", transfer_s=8e-4, skew_s=7e-4, skew_max_s=1e-3,
                    waited_s=0.003, last_rank=count - 1, bytes=4 << 20, dtype="float32", group=group, group_size=count,
                    algorithm_byte_per_s=5e9, bus_byte_per_s=5e9,
                ),
            ),
            "unmatched": (UnmatchedRow(kind="send", count=3, reason="messages between two ranks are not matched", group=group),),
            **more,
        }
    )  # fmt: skip


def printed(analysis, **options):
    return in_terminal(page(analysis), **options)


def test_who_is_late():
    # It fits 80 columns and says who is late.
    text = printed(sample())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "2 ranks · NVIDIA H100 · times per step" in text
    plain = " ".join(text.split())
    assert "In the mean over 2 ranks the device computes for 100 % of the step" in plain
    assert "take 4.00 ms of a rank's trace in the mean: 1.00 ms transfer, 500 µs waiting in the first ones because" in plain
    assert "Rank 1 is late: last into 4 of 4 matched collectives" in plain
    assert "Compute is uneven by 9 %: 12.0 ms on rank 1" in text
    assert "allreduce pg 0 of 2  4.19 MB" in text
    assert "not matched: 3 send of group 0: messages between two ranks" in text
    # Nobody is blamed where a single step follows recordings that began apart.
    apart = Waiting(transfer_s=0.001, at_start_s=0.003, in_steps_s=0.0025)
    assert "Which rank is late cannot be told" in " ".join(printed(sample(waiting=apart)).split())
    several = sample(waiting=apart)
    several = replace(several, ranks=tuple(replace(one, steps=3) for one in several.ranks))
    assert "Rank 1 is late" in " ".join(printed(several).split())


def test_long_names_and_many_ranks():
    # A long group gives way to the numbers.
    text = printed(sample(group="data_parallel_" * 20))
    rows = [line for line in text.splitlines() if line.startswith("  allreduce")]
    assert len(rows) == 1
    assert len(rows[0]) <= 80
    assert "4.19 MB" in rows[0]
    # Of many ranks those that are waited for are shown.
    lines = printed(sample(200)).splitlines()
    table = [line for line in lines if line[:6].strip().isdigit()]
    assert len(table) == 24
    assert table[-1].startswith("   199")
    assert any("24 of 200 ranks" in line for line in lines)
    # A transfer that another rank may cut short is marked.
    partial = sample(world_size=8)
    partial = replace(partial, collectives=(replace(partial.collectives[0], group_size=8),))
    assert "<800" in printed(partial)
    # What is absent is a dash and nothing is late where nobody waited.
    ranks = (rank(0, matched=0, hidden_fraction=None), rank(1))
    bare = replace(sample(), waiting=None, straggler=None, collectives=(), ranks=ranks)
    text = printed(bare)
    assert "No collective in which ranks wait for each other was matched across ranks." in " ".join(text.split())
    assert [line.split()[-4:] for line in text.splitlines() if line.startswith("     0")] == [["–", "–", "–", "–"]]


def test_names_are_text_in_the_terminal_and_on_the_page():
    # A name cannot steer the terminal and ascii is enough.
    text = printed(sample(group="\x1b[2J\x07x"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert printed(sample(group="μ"), encoding="ascii")
    # The page holds names as text and asks for nothing.
    text = render(page(sample(group=SCRIPT, device_name=SCRIPT, notes=(f'rank 0: {SCRIPT} "quoted"',))))
    found = HtmlPage(text)
    assert len(found.scripts) == 2  # the theme and the tables
    assert "<script>alert" not in text
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert found.text.count(SCRIPT) >= 3
    assert "default-src 'none'" in text
    assert len(found.sections) == 5


def test_bars_and_csv():
    # Bars are on one scale and fill the span.
    drawn = bars(sample(ranks=(rank(0), rank(1, span_s=0.01, busy_s=0.01, idle_s=0.0, compute_s=0.01, exposed_communication_s=0))))
    first, second = drawn.rows
    assert sum(part.share for part in first.parts) == pytest.approx(1)
    # 10 ms compute, 15 - 10 - 4 = 1 ms copies, 4 ms exposed, 5 ms idle of 20 ms
    assert [round(100 * part.share) for part in first.parts] == [50, 5, 20, 25]
    assert [(part.name, round(100 * part.share)) for part in second.parts] == [("compute", 50)]
    # Csv has every field and no formula.
    rows = list(csv.reader(io.StringIO(struct_csv(sample(ranks=(rank(0, source="=cmd|' /C calc'!A0"), rank(1))).ranks, RankRow))))
    assert tuple(rows[0]) == RankRow.__struct_fields__
    assert rows[1][1] == "'=cmd|' /C calc'!A0"
    assert float(rows[2][rows[0].index("compute_s")]) == 0.01
    rows = list(csv.reader(io.StringIO(struct_csv(sample(group="@SUM(A1)").collectives, MatchedRow))))
    assert tuple(rows[0]) == MatchedRow.__struct_fields__
    assert rows[1][rows[0].index("group")] == "'@SUM(A1)"
