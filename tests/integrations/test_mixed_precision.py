"""A loop as trainers of detectors write it: autocast, a gradient scaler, warm-up of the learning rate, accumulation, an average."""

import textwrap

import pytest

from tests.integrations.reports import calls, check_report

SOURCE = """
import copy

def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())

model = nn.Sequential(block(3, 8), block(8, 8), nn.Flatten(), nn.Linear(8 * 64, 4))
decayed = [p for p in model.parameters() if p.dim() > 1]
optimizer = torch.optim.SGD([p for p in model.parameters() if p.dim() == 1], lr=0.01, momentum=0.9, nesterov=True)
optimizer.add_param_group({"params": decayed, "weight_decay": 5e-4})
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / 60)
scaler = torch.amp.GradScaler("cpu")
average = copy.deepcopy(model).eval()
batches, warm_up, accumulate, last, updates = 20, 20, 1, -1, 0
for epoch in range(40):
    model.train()
    for batch in range(batches):
        number = batch + batches * epoch
        if number <= warm_up:
            accumulate = 1 if number < warm_up / 2 else 2
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * number / warm_up
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(torch.rand(4, 3, 32, 32)), torch.randint(0, 4, (4,)))
        scaler.scale(loss).backward()
        if number - last >= accumulate:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            with torch.no_grad():
                for name, value in average.state_dict().items():
                    if value.dtype.is_floating_point:
                        value.lerp_(model.state_dict()[name], 0.01)
            last, updates = number, updates + 1
    schedule.step()
    with torch.no_grad():
        average(torch.rand(8, 3, 32, 32))
"""


@pytest.mark.ci
def test_a_step_is_one_update_of_two_batches(profile_here):
    analysis = check_report(profile_here(textwrap.dedent(SOURCE)), 405)
    # Two batches of two convolutions each, and now and then the call of the average at the end of an epoch.
    assert calls(analysis)["aten::convolution_backward"] == 4
    assert 2 <= calls(analysis)["aten::addmm"] <= 2.5
    assert any(row.precision == "bf16" for row in analysis.operators if row.name == "aten::addmm")
