"""Accelerate: a prepared loop that accumulates gradients."""

import pytest

from tests.integrations.reports import calls, check_report, profile

SOURCE = """
    import torch
    from accelerate import Accelerator
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    data = DataLoader(TensorDataset(torch.randn(160, 8), torch.randint(0, 2, (160,))), batch_size=4, shuffle=True)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    for epoch in range(10):
        model.train()
        for inputs, target in data:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(inputs), target))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
"""


@pytest.mark.ci
def test_a_step_is_one_update_of_four_batches(tmp_path):
    analysis = check_report(profile(tmp_path, SOURCE), 100)
    assert calls(analysis)["aten::addmm"] == 4 * 2
    assert calls(analysis)["aten::mm"] == 4 * 3
