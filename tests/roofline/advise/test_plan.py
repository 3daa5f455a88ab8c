"""The plan of the findings: what is the limit after the last, and which operators need no work."""

import json

import pytest
from msgspec.structs import replace

import rooflines
from rooflines.reports.words.sentences import chain_sentence, saving, settled_sentence
from tests.roofline.real import DATA
from tests.traces import kernel, launch, op, span

SIZE = 4096
# On an H100: 2 * 4096³ FLOP at 989 TFLOP/s, and 24 MiB of three tensors at 3.35 TB/s.
PRODUCT_US, ADDITION_US = 2 * SIZE**3 / 989e6, 3 * 2 * SIZE**2 / 3.35e6


@pytest.fixture
def analysis(tmp_path):
    """Three steps of a product at 95 % of its bound and an addition at a tenth of it; the host is ahead."""
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    tensors = {"dims": [[SIZE, SIZE], [SIZE, SIZE]], "types": ["c10::BFloat16"] * 2}
    product_us, addition_us = PRODUCT_US / 0.95, 10 * ADDITION_US
    events, at = [], 0.0
    for number in range(3):
        host, first = 1000 * number, max(1000 * number + 12, at)
        at = first + product_us + addition_us + 1
        events += [
            span(f"ProfilerStep#{number}", host, 1000),
            op("aten::mm", host, 20, **tensors), launch(host + 5, 2, 2 * number + 1),
            kernel("nvjet_tst_128x256_64x4", first, product_us, 2 * number + 1),
            op("aten::add", host + 30, 20, **tensors), launch(host + 35, 2, 2 * number + 2),
            kernel("elementwise_kernel", first + product_us + 1, addition_us, 2 * number + 2),
        ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **device, "traceEvents": events}))
    return rooflines.analyze(path)


def test_operators_near_their_bound_need_no_work(analysis):
    settled = analysis.replay.settled
    assert settled is not None
    assert settled.operators == ("aten::mm",)
    assert settled.time_s == pytest.approx(1e-6 * PRODUCT_US / 0.95, rel=0.01)
    assert settled.gain_s == pytest.approx(0.05 * settled.time_s, rel=0.1)
    assert settled_sentence(analysis).startswith("Do not work on aten::mm: ")


def test_the_limit_after_the_last_change_is_named(analysis):
    assert analysis.findings[0].about_s is not None
    chain_s = analysis.replay.chain_s
    assert sum(one.about_s for one in analysis.findings if one.about_s) == pytest.approx(chain_s[0] - chain_s[-1])
    assert analysis.replay.limits_s["operators"] > analysis.replay.limits_s.get("host", 0.0)
    assert chain_sentence(analysis).endswith("Then the operators' work is the limit.")
    assert "with changes 1 and 2, one after another, about" in chain_sentence(analysis)


def test_no_limit_is_named_where_none_alone_decides_or_much_is_not_explained(analysis):
    unexplained = replace(analysis.replay, kept_fraction=0.2)
    assert "limit" not in chain_sentence(replace(analysis, replay=unexplained))
    together = replace(analysis.replay, limits_s={})
    assert chain_sentence(replace(analysis, replay=together)).endswith("Then no part alone is the limit.")
    both = replace(analysis.replay, limits_s={"host": 2e-4, "operators": 3e-4})
    assert chain_sentence(replace(analysis, replay=both)).endswith("Then the host and the operators' work are the limits.")


def test_a_saving_on_a_processor_is_a_bound():
    analysis = rooflines.analyze(DATA / "cpu_only.json.gz")
    (finding,) = analysis.findings
    assert finding.about_s == finding.saves_s
    assert finding.alone_s is None
    assert saving(finding, analysis.whole_s, "in the trace").startswith("saves up to ")
    assert "at best" in chain_sentence(analysis)
