"""Networks of every kind that are trained or called: each function is a program, chosen by the first argument."""

import io
import random
import sys

import numpy as np
import torch
import torch.distributed as dist
from small import network, one_step, train
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, vmap
from torch.nn.modules import module as modules
from torch.nn.utils import parametrizations
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, SequentialLR, StepLR
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def training():
    """Train, and say something on standard error."""
    train()
    print("trained", file=sys.stderr)


def closures():
    """Optimizers that call the model themselves (LBFGS), several that take turns, and parameters that step in the backward pass."""
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    data = torch.randn(4, 8)

    def closure():
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        return loss

    for _ in range(8):
        print(round(optimizer.step(closure).item(), 6))
    first, second = network(), network()
    turns = [(one, torch.optim.Adam(one.parameters())) for one in (first, second)]
    for _ in range(8):
        print(*(round(one_step(*turn), 6) for turn in turns))
    for parameter in first.parameters():
        own = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda p, own=own: own.step() or own.zero_grad())
    for _ in range(8):
        loss = first(data).square().mean()
        loss.backward()
        print(round(loss.item(), 6))


def custom_functions():
    """A custom operator, a custom function, hooks on tensors and on gradients."""

    @torch.library.custom_op("laws::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(context, gradient):
            return gradient * 3 * context.saved_tensors[0] ** 2

    seen = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.tolist()))
    for _ in range(4):
        Cube.apply(double(x.detach()) + x).sum().backward()
    print(seen, x.grad)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen.append(tensor.shape) or tensor, lambda tensor: tensor):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters())
        print(*(round(one_step(model, optimizer), 6) for _ in range(12)), sep="\n")
    print(len(seen))


def distributed_alone():
    """A group of one process, and DistributedDataParallel."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print(*(round(one_step(model, optimizer), 6) for _ in range(14)), sep="\n")
    print(dist.get_world_size(), dist.get_backend())
    dist.destroy_process_group()


def frees_memory():
    """Memory from before a step that is freed in it, with a log of torch's own."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    old = [torch.ones(1000) for _ in range(40)]
    for _ in range(16):
        print(round(one_step(model, optimizer), 6))
        del old[-2:]


def functional():
    """torch.func: vmap, grad, functional calls of a module, and a hessian."""
    model = network()
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    data = torch.randn(6, 8)

    def loss(parameters, x):
        return functional_call(model, parameters, (x,)).square().mean()

    for _ in range(10):
        gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, data)
        parameters = {name: value - 0.1 * gradients[name].mean(0) for name, value in parameters.items()}
        print(round(loss(parameters, data).item(), 6))
    print(hessian(lambda x: x.sin().sum())(torch.ones(2)), jacrev(torch.tanh)(torch.ones(2)).diagonal())


def inference():
    """Call a model without gradients."""
    model = network().eval()
    with torch.inference_mode():
        for step in range(14):
            print(step, model(torch.full((4, 8), float(step))).sum().item())


def module_hooks():
    """Hooks of the program on all modules and on one, their order and removal."""
    said = []
    handles = [
        modules.register_module_forward_pre_hook(lambda module, inputs: said.append(f"before {type(module).__name__}")),
        modules.register_module_forward_hook(lambda module, inputs, output: said.append(f"after {type(module).__name__}")),
        modules.register_module_full_backward_hook(lambda module, *_: said.append(f"back {type(module).__name__}")),
    ]
    model = network()
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    model[2].register_forward_hook(lambda module, inputs, output: output + 1)
    model(torch.ones(1, 8, requires_grad=True)).sum().backward()
    print(*said, sep="\n")
    said.clear()
    train(8)
    print(len(said))
    for handle in handles:
        handle.remove()
    train(8)
    print(len(said), model(torch.ones(1, 8)).sum().item())


def module_kinds():
    """Lazy modules, parametrizations, checkpointing, shared and nested modules, nested tensors."""
    torch.manual_seed(0)

    class Checkpointed(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False) + self.inner(x)

    model = nn.Sequential(
        nn.LazyLinear(8), parametrizations.weight_norm(nn.Linear(8, 8)), parametrizations.orthogonal(nn.Linear(8, 8)),
        Checkpointed(nn.Linear(8, 8)), nn.utils.spectral_norm(nn.Linear(8, 2)),
    )  # fmt: skip
    model(torch.randn(4, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print(*(round(one_step(model, optimizer), 5) for _ in range(12)), sep="\n")
    print(type(model[0]).__name__, list(model.state_dict()), repr(model))
    nested = torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged, requires_grad=True)
    with torch.no_grad():
        for _ in range(4):
            print(nn.Linear(8, 2)(nested).values().sum().item())


def optimizer_attributes():
    """The attributes of an optimizer: its step is that of its class."""
    _, optimizer = train()
    print(sorted(vars(optimizer)), optimizer.step.__func__ is SGD.step, optimizer.step == optimizer.step, SGD.step.__qualname__)
    print(sorted(vars(SGD)), SGD.__init__.__qualname__)


def patched():
    """Methods of torch's classes that the program replaces, and puts back."""
    calls = []
    module_call, sgd_step = nn.Module.__call__, torch.optim.SGD.step

    def call(self, *arguments, **keywords):
        calls.append(type(self).__name__)
        return module_call(self, *arguments, **keywords)

    def step(self, closure=None):
        calls.append("step")
        return sgd_step(self, closure)

    nn.Module.__call__, torch.optim.SGD.step = call, step
    train(8)
    print(calls[:8], len(calls))
    nn.Module.__call__, torch.optim.SGD.step = module_call, sgd_step
    train(8)
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    step_before = optimizer.step
    optimizer.step = lambda *arguments: (calls.append("mine"), step_before(*arguments))[1]
    for _ in range(6):
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
    print(len(calls), calls[-1])
    del optimizer.step
    print(optimizer.step)


def random_numbers():
    """Random numbers of Python, NumPy and torch, before, during and after training."""
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002 (the old generator is shared by all)
    torch.manual_seed(3)

    def draw():
        print(random.random(), np.random.rand(), torch.rand(1).item(), torch.initial_seed())  # noqa: NPY002

    draw()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(14):
        one_step(model, optimizer)
        draw()
    for (batch,) in DataLoader(TensorDataset(torch.arange(12.0)), batch_size=4, shuffle=True):
        print(batch)
        draw()
    print(torch.nn.functional.dropout(torch.ones(8)))


def schedulers():
    """Learning-rate schedulers, called in the right order and in the wrong one, about which torch warns."""
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


def script_modules():
    """TorchScript: scripted, traced, loaded again, frozen, and a scripted child of a module."""
    scripted = torch.jit.script(network())
    traced = torch.jit.trace(network(), torch.ones(4, 8))
    saved = io.BytesIO()  # a file would have an id of its own in each run, and be compared
    torch.jit.save(scripted, saved)
    saved.seek(0)
    models = [scripted, traced, torch.jit.load(saved), torch.jit.freeze(torch.jit.script(network().eval()))]
    with torch.no_grad():
        for model in models:
            for _ in range(4):
                print(round(model(torch.ones(4, 8)).sum().item(), 6))
    mixed = nn.Sequential(torch.jit.script(nn.Linear(8, 8)), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(mixed.parameters(), lr=0.1)
    print(*(round(one_step(mixed, optimizer), 6) for _ in range(12)))


globals()[sys.argv.pop(1)]()
