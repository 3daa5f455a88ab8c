"""Programs that compile their model, their optimizer or their whole step."""

import textwrap

import pytest

from tests.integrations.reports import calls, check_report, profile, steps_taken

LOOP = """
model = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
optimizer = torch.optim.Adam(model.parameters())
update = optimizer.step
for _ in range(100):
    optimizer.zero_grad()
    loss(model).backward()
    update()
"""
WHOLE_STEP = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.compile
def step(inputs):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()

for _ in range(10):
    step(torch.randn(4, 8))
"""


@pytest.fixture(autouse=True)
def compile_again():
    import torch

    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.ci
def test_a_compiled_model(profile_here):
    analysis = check_report(profile_here(LOOP), 100)
    assert (calls(analysis)["aten::addmm"], calls(analysis)["aten::mm"]) == (2, 3)
    assert any("fused" in name for name in calls(analysis))


@pytest.mark.slow
def test_a_compiled_optimizer(profile_here):
    # torch writes no range of the optimizer where it is compiled, so its kernel is no part of that phase.
    compiled = LOOP.replace("update = optimizer.step", "update = torch.compile(lambda: optimizer.step())")
    analysis = check_report(profile_here(compiled), 100, phases={"forward", "backward"})
    assert (calls(analysis)["aten::addmm"], calls(analysis)["aten::mm"]) == (2, 3)
    assert [count for name, count in calls(analysis).items() if "addcdiv" in name] == [1]


@pytest.mark.ci
def test_a_step_that_is_compiled_as_a_whole_is_seen_as_one_program(tmp_path):
    run = profile(tmp_path, "import torch\nfrom torch import nn\n" + textwrap.dedent(WHOLE_STEP))
    analysis = check_report(run, 0, phases={"forward", "backward"})
    assert (run.facts.steps.traced, steps_taken(run)) == ("program", 0)
    assert [count for name, count in calls(analysis).items() if "fused_mean" in name] == [10]
