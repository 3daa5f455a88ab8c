"""Learning-rate schedulers, called in the right order and in the wrong one, about which torch warns."""

import torch
from small import network, one_step
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, SequentialLR, StepLR

for make in (
    lambda o: StepLR(o, 3), lambda o: CosineAnnealingLR(o, 10), lambda o: OneCycleLR(o, 0.1, total_steps=40),
    lambda o: SequentialLR(o, [LambdaLR(o, lambda n: 0.9**n), StepLR(o, 2)], [4]),
):  # fmt: skip
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    for _ in range(6):
        print(round(one_step(model, optimizer), 5), [round(rate, 6) for rate in scheduler.get_last_lr()])
        scheduler.step()
optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
scheduler = StepLR(optimizer, 3)
scheduler.step()
optimizer.step()
