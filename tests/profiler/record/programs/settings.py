"""Settings of torch that the program makes: threads, data type, device, algorithms, gradients."""

import torch
from small import network, one_step, train

print(torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.get_default_device())
torch.set_num_interop_threads(2)
torch.set_num_threads(2)
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.set_float32_matmul_precision("medium")
torch.backends.mkldnn.enabled = False
train(6)
torch.set_default_device("cpu")
train(6)
with torch.device("meta"):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
torch.set_default_dtype(torch.bfloat16)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autograd.set_detect_anomaly(True):
    print(*(one_step(model, optimizer) for _ in range(8)))
print(torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.get_default_device())
print(torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), torch.is_grad_enabled())
