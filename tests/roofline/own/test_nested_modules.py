"""Modules of traces with a Python stack: each has the time of everything launched below it."""

import re

import pytest

from tests.roofline.real import named
from tests.roofline.rooms import analyzed, frame
from tests.traces import kernel, launch, op


@pytest.mark.parametrize(
    ("name", "root", "layer", "layers"),
    [
        ("bert-small_h100_inference", "BertLMHeadModel_0", r"BertLMHeadModel_0\.BertModel_0\.BertEncoder_0\.BertLayer_\d+", 4),
        ("vit-b16_mi300x_inference", "ViTModel_0", r"ViTModel_0\.ViTEncoder_0\.ViTLayer_\d+", 12),
    ],
)
def test_a_module_has_the_time_of_everything_below_it(name, root, layer, layers):
    analysis = named(name)
    time_of = {row.path: row.time_s for row in analysis.modules}
    whole = sum(row.time_s for row in analysis.operators) + sum(item.time_s for item in analysis.coverage.unmodeled)
    assert time_of[root] == pytest.approx(whole)
    found = [path for path in time_of if re.fullmatch(layer, path)]
    assert len(found) == layers
    for path in found:
        own = sum(row.time_s for row in analysis.operators if row.module == path)
        children = sum(time_s for other, time_s in time_of.items() if re.fullmatch(rf"{re.escape(path)}\.[^.]+", other))
        assert 0 < own + children == pytest.approx(time_of[path])
    assert {row.depth for row in analysis.modules if row.path in found} == {root.count(".") + layer.count(r"\.") + 1}


def test_operators_without_a_count_are_in_their_module(tmp_path):
    modules = frame("nn.Module: Net_0", 0, 100), frame("nn.Module: Block_0", 1, 90)
    analysis = analyzed(tmp_path, *modules, op("mylib::secret", 5, 20), launch(6, 2, 1), kernel("k", 30, 40, 1))
    assert [(row.path, round(row.time_s * 1e6)) for row in analysis.modules] == [("Net_0", 40), ("Net_0.Block_0", 40)]
