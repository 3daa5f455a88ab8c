"""``torch-cpu``, ``torch-cuda`` and ``torch-mps``: the network as PyTorch's users write it, eager or
compiled."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rooflines.ext import synchronize_device, tf32_state, timed_on_device
from rooflines_studies.networks import cnn
from rooflines_studies.networks.base import OperatorTime, fastest

# About a millisecond on any GPU: longer than the host takes to launch one operator.
_DELAY_CYCLES = 2_000_000


class TorchCnn:
    """``torch.nn`` layers and ``torch.optim.SGD`` on ``device`` (``cpu``, ``cuda``, ``cuda:1``, ``mps``),
    with their defaults.

    Convolutions on a GPU use TF32 where torch is allowed to, which it is by default; ``operators`` shows it
    in their precision. With ``compile`` forward and loss go through ``torch.compile``; each new batch size is
    compiled for itself. Raises what torch raises where it has no such device.
    """

    def __init__(
        self,
        device: str = "cpu",
        parameters: dict[str, NDArray[np.float32]] | None = None,
        *,
        compile: bool = False,
        learning_rate: float = cnn.LEARNING_RATE,
        momentum: float = cnn.MOMENTUM,
    ) -> None:
        self.device = torch.device(device)
        self.name = f"torch-{self.device.type}" + ("-compile" if compile else "")
        layers = OrderedDict(
            conv1=nn.Conv2d(1, 8, 3),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(8, 16, 3),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            dense1=nn.Linear(400, 128),
            relu3=nn.ReLU(),
            dense2=nn.Linear(128, cnn.CLASSES),
        )
        self.module = nn.Sequential(layers).to(self.device)
        with torch.no_grad():
            for name, value in (parameters or cnn.initial_parameters()).items():
                self.module.get_parameter(name).copy_(torch.from_numpy(value))
        self._optimizer = torch.optim.SGD(self.module.parameters(), lr=learning_rate, momentum=momentum)
        self._hyperparameters = (learning_rate, momentum)

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.module(x), y)

        self._loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = (
            torch.compile(loss, dynamic=False) if compile else loss
        )
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._memory_before = torch.cuda.memory_allocated(self.device) - sum(
                parameter.nbytes for parameter in self.module.parameters()
            )
        self._most_memory = 0

    def step(self, x: Any, y: Any) -> float:
        """See ``Network.step``; reading the loss is what waits for the device."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self.resident(x), self.resident(y))
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        value = loss.item()
        self.synchronize()
        if self.device.type == "mps":
            self._watch_memory()
        return value

    def gradients(self, x: Any, y: Any) -> dict[str, NDArray[np.float32]]:
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(self.resident(x), self.resident(y)).backward()  # type: ignore[no-untyped-call]
        named = self.module.named_parameters()
        found = {
            name: parameter.grad.cpu().numpy().copy()
            for name, parameter in named
            if parameter.grad is not None
        }
        self._optimizer.zero_grad(set_to_none=True)
        return found

    def predict(self, x: Any) -> NDArray[np.int64]:
        with torch.no_grad():
            classes: NDArray[np.int64] = self.module(self.resident(x)).argmax(1).cpu().numpy()
        return classes

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        return {
            name: parameter.detach().cpu().numpy().copy()
            for name, parameter in self.module.named_parameters()
        }

    def resident(self, array: Any) -> torch.Tensor:
        if not isinstance(array, torch.Tensor):
            array = np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64)
            array = torch.from_numpy(array)
        moved: torch.Tensor = array.to(self.device)
        return moved

    def synchronize(self) -> None:
        synchronize_device(self.device)

    def operators(self, x: Any, y: Any, rounds: int = 5) -> tuple[OperatorTime, ...]:
        """See ``Network.operators``. The layers' operators called one by one, also of a compiled network,
        which has no operators.

        On a CUDA device by events, without the time that a launch takes on the host, as ``numba-cuda`` times
        its own.
        """
        x, y = self.resident(x), self.resident(y)
        seconds: list[list[float]] = []

        def run(function: Callable[..., Any], *arguments: Any) -> Any:
            made: list[Any] = []
            seconds[-1].append(self._seconds(lambda: made.append(function(*arguments))))
            return made[0]

        with torch.no_grad():
            for _ in range(rounds + 1):
                seconds.append([])
                _run_operators(run, self.module, x, y, *self._hyperparameters)
        work = cnn.work(len(y))
        # torch's default on GPUs that have it
        of_cuda = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) >= (8, 0)
        if of_cuda and tf32_state()["convolution"]:
            work = tuple(
                msgspec.structs.replace(part, precision="tf32") if "convolution" in part.name else part
                for part in work
            )
        return fastest(work, seconds[1:])

    def device_memory_bytes(self) -> int | None:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self._memory_before
        if self.device.type == "mps":
            self._watch_memory()
            return self._most_memory
        return None

    def close(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def _seconds(self, call: Callable[[], object]) -> float:
        """What the device took for ``call``: on a GPU without the launch, which is queued while it is kept
        busy with something else."""
        self.synchronize()
        if self.device.type == "cuda":
            begin, end = (
                torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                for _ in range(2)
            )
            torch.cuda._sleep(_DELAY_CYCLES)  # type: ignore[no-untyped-call]
            begin.record()
            call()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3
        return timed_on_device(self.device, call, 1).seconds

    def _watch_memory(self) -> None:
        """Metal keeps no record of the most that was allocated: what is after a step, gradients and momentum
        included, is a floor."""
        self._most_memory = max(self._most_memory, torch.mps.current_allocated_memory())


def _run_operators(
    run: Callable[..., Any],
    module: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    learning_rate: float,
    momentum: float,
) -> None:
    """Compute a step by the operators of ``cnn.work`` in its order, as autograd calls them: ``run`` calls a
    function with arguments.

    The optimizer is given copies, so that the network stays as it is.
    """
    aten, linear = torch.ops.aten, torch.nn.functional.linear
    parameters = dict(module.named_parameters())
    output, maxima = {"image": x}, {}
    gradients: dict[str, torch.Tensor] = {}
    before = "image"
    for conv, pool in (("conv1", "pool1"), ("conv2", "pool2")):
        sums = run(torch.conv2d, output[before], parameters[f"{conv}.weight"], parameters[f"{conv}.bias"])
        output[conv] = run(torch.relu, sums)
        output[pool], maxima[conv] = run(aten.max_pool2d_with_indices, output[conv], [2, 2])
        before = pool
    output["flat"] = output["pool2"].flatten(1)
    sums = run(linear, output["flat"], parameters["dense1.weight"], parameters["dense1.bias"])
    output["dense1"] = run(torch.relu, sums)
    logits = run(linear, output["dense1"], parameters["dense2.weight"], parameters["dense2.bias"])
    scores = run(aten._log_softmax, logits, 1, False)
    _, weights = run(aten.nll_loss_forward, scores, y, None, 1, -100)
    above = run(aten.nll_loss_backward, torch.ones((), device=x.device), scores, y, None, 1, -100, weights)
    above = run(aten._log_softmax_backward_data, above, scores, 1, torch.float32)
    for dense, before in (("dense2", "dense1"), ("dense1", "flat")):
        below = run(torch.mm, above, parameters[f"{dense}.weight"])
        gradients[f"{dense}.weight"] = run(torch.mm, above.t(), output[before])
        gradients[f"{dense}.bias"] = run(torch.sum, above, 0)
        above = below
        if dense == "dense2":
            above = run(aten.threshold_backward, above, output["dense1"], 0)
    above = above.view_as(output["pool2"])
    for conv, before in (("conv2", "pool1"), ("conv1", "image")):
        window = [[2, 2], [2, 2], [0, 0], [1, 1], False]
        above = run(aten.max_pool2d_with_indices_backward, above, output[conv], *window, maxima[conv])
        above = run(aten.threshold_backward, above, output[conv], 0)
        weight = parameters[f"{conv}.weight"]
        rest = [[len(weight)], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [conv == "conv2", True, True]]
        of_all = run(aten.convolution_backward, above, output[before], weight, *rest)
        above, gradients[f"{conv}.weight"], gradients[f"{conv}.bias"] = of_all
    copies = copy.deepcopy(parameters)
    for name, parameter in copies.items():
        parameter.grad = gradients[name]
    optimizer = torch.optim.SGD(copies.values(), lr=learning_rate, momentum=momentum)
    optimizer.step()  # makes the momentum
    run(optimizer.step)
