"""Call a model without gradients."""

import torch
from small import network

model = network().eval()
with torch.inference_mode():
    for step in range(14):
        print(step, model(torch.full((4, 8), float(step))).sum().item())
