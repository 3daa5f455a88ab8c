"""The lines of a real script and of its compiled module."""

import sys
import textwrap

import pytest

import rooflines


@pytest.mark.ci
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 marks nothing")
@pytest.mark.parametrize("arguments", [(), ("compiled",)])
def test_a_script_and_its_compiled_module_have_their_lines(profiled, arguments):
    script = textwrap.dedent("""\
        import sys
        import torch
        import torch.nn.functional as F

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)

            def forward(self, x):
                y = self.a(x)
                return F.gelu(self.b(y))

        net = Net()
        if "compiled" in sys.argv:
            net = torch.compile(net)
        optimizer = torch.optim.SGD(net.parameters())
        for _ in range(4000):
            x = torch.randn(64, 256)
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
        """)
    _, recorded = profiled(script, *arguments)
    rows = rooflines.analyze(recorded).operators
    lines = {row.name: [line.place for line in row.lines] for row in rows if row.name in ("aten::gelu", "aten::randn", "aten::sum")}
    assert lines["aten::randn"] == ["train.py:19"]
    products = {line.place for row in rows if "mm" in row.name for line in row.lines}
    assert products >= {"train.py:11", "train.py:12"}, arguments
    if arguments:
        fused = [row for row in rows if row.name.startswith(("graph_", "cpp_fused")) and "gelu" in row.name]
        assert fused
        assert all("train.py:12" in [line.place for line in row.lines] for row in fused)
    else:
        assert lines["aten::gelu"] == ["train.py:12"]
        assert "train.py:20" in {line.place for row in rows if row.name == "aten::sum" for line in row.lines}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 marks nothing")
def test_a_program_without_steps_has_its_lines(profiled):
    script = textwrap.dedent("""\
        import torch

        def norm(x):
            return x / x.square().sum()

        x = torch.randn(64, 64)
        for _ in range(20):
            x = norm(x @ x)
        """)
    _, recorded = profiled(script)
    rows = rooflines.analyze(recorded).operators
    lines = {row.name: [line.place for line in row.lines] for row in rows}
    assert {name: lines[name] for name in ("aten::randn", "aten::mm", "aten::div", "aten::sum")} == {
        "aten::randn": ["train.py:6"], "aten::mm": ["train.py:8"], "aten::div": ["train.py:4"], "aten::sum": ["train.py:4"],
    }  # fmt: skip
