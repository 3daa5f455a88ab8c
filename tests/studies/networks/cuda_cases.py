"""What the network's CUDA kernels compute, case by case: for ``test_cnn_cuda``, in Numba's CUDA simulator and on a GPU.

Run as a module with the names of cases, in the simulator, it prints a JSON object: each case with "ok", or what went wrong or raced.
"""

import contextlib
import json
import sys
import traceback

import numpy as np
import torch
import torch.nn.functional as F
from numba import cuda, float32

from rooflines.errors import UsageError
from rooflines.kernels.micro.cuda_vectors import CUDA_IS_SIMULATED, compiled_cuda, cuda_launcher
from rooflines_studies.networks import cnn_numba_cuda_convolution as convolution
from rooflines_studies.networks import cnn_numba_cuda_dense as dense
from rooflines_studies.networks import cnn_numba_cuda_update as ends
from rooflines_studies.networks.cnn_numba_cuda import NumbaCuda, declared
from tests.studies.networks import reference

UNTOUCHED = 77
IMAGE = (1, 12, 11)  # conv1 10 x 9, pool1 5 x 4, conv2 3 x 2, pool2 1 x 1: odd sizes, and lines that no window covers
LAYERS = [(1, 7, 6, 3), (2, 6, 5, 4)]  # channels, height, width, filters


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def there(array):
    return cuda.to_device(np.ascontiguousarray(array).reshape(-1))


def empty(size, kind=np.float32, behind=5):
    """Room for ``size`` results and some more that no kernel may touch."""
    return cuda.to_device(np.full(size + behind, UNTOUCHED, kind))


def back(array, *shape):
    found, size = array.copy_to_host(), int(np.prod(shape))
    assert (found[size:] == UNTOUCHED).all(), "written behind the end"
    return found[:size].reshape(shape)


def run(kernel, blocks, *arguments):
    cuda_launcher(kernel.function, blocks, kernel.threads, *arguments)()
    cuda.synchronize()


def close(found, expected, tolerance=1e-5):
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(), 1e-30))


class Convolved:
    """A convolution, ReLU and maximum in float64, and its gradients for a random gradient of the result."""

    def __init__(self, channels, height, width, filters, samples):
        self.x = random(samples, channels, height, width)
        self.weight, self.bias = random(filters, channels, 3, 3, seed=1), random(filters, seed=2)
        x, weight, bias = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (self.x, self.weight, self.bias))
        pooled, places = F.max_pool2d(F.relu(F.conv2d(x, weight, bias)), 2, return_indices=True)
        self.gradient = random(*pooled.shape, seed=3)
        pooled.backward(torch.tensor(self.gradient, dtype=torch.float64))
        self.pooled, self.shape = pooled.detach().numpy(), tuple(pooled.shape)
        rows, columns = np.divmod(places.numpy(), width - 2)
        self.switches = np.where(self.pooled > 0, rows % 2 * 2 + columns % 2, convolution.DEAD).astype(np.int8)
        self.of_x, self.of_weight, self.of_bias = (tensor.grad.numpy() for tensor in (x, weight, bias))
        self.weights = np.concatenate([self.weight.reshape(-1), self.bias])


def case_convolution_forward():
    for layer in LAYERS:
        kernel, samples, first = convolution.forward(*layer), 3, 1
        expected = Convolved(*layer, samples)
        x = np.concatenate([random(first, *expected.x.shape[1:], seed=9), expected.x])
        pooled, switches = empty(expected.pooled.size), empty(expected.pooled.size, np.int8)
        run(kernel, samples, there(x), first, there(expected.weights), pooled, switches)
        close(back(pooled, *expected.shape), expected.pooled)
        np.testing.assert_array_equal(back(switches, *expected.shape), expected.switches)


def case_convolution_of_equal_and_missing_numbers():
    """The first of equals has the maximum; nothing passes where all is below 0; what is not a number stays so."""
    kernel = convolution.forward(1, 4, 4, 3)
    weights = np.zeros((3, 9), np.float32)
    weights[:, 4] = 1, -1, 0
    for value, expected, switch in ((2, (2, 0, 0), (0, 4, 4)), (0, (0, 0, 0), (4, 4, 4))):
        pooled, switches = empty(3), empty(3, np.int8)
        biased = np.concatenate([weights.reshape(-1), np.zeros(3, np.float32)])
        run(kernel, 1, there(np.full((4, 4), value, np.float32)), 0, there(biased), pooled, switches)
        assert back(pooled, 3).tolist() == list(expected)
        assert back(switches, 3).tolist() == list(switch)
    image = np.ones((4, 4), np.float32)
    image[2, 1] = np.nan  # under the center of the third position
    pooled, switches = empty(3), empty(3, np.int8)
    run(kernel, 1, there(image), 0, there(biased), pooled, switches)
    assert np.isnan(back(pooled, 3)).all()


def case_convolution_weight_gradient():
    for layer, blocks in zip(LAYERS, (2, 3), strict=True):  # a block with two samples and one with one, then one each
        kernel, samples, first = convolution.weight_gradient(*layer), 3, 2
        expected = Convolved(*layer, samples)
        x = np.concatenate([random(first, *expected.x.shape[1:], seed=9), expected.x])
        partials = empty(blocks * expected.weights.size)
        run(kernel, blocks, there(x), first, samples, there(expected.gradient), there(expected.switches), partials)
        found = back(partials, blocks, expected.weights.size)
        close(found.sum(axis=0), np.concatenate([expected.of_weight.reshape(-1), expected.of_bias]))
        assert np.abs(found).min(axis=1).max() > 0  # no row was left at nothing


def case_convolution_input_gradient():
    for layer in LAYERS:
        kernel, samples = convolution.input_gradient(*layer), 2
        expected = Convolved(*layer, samples)
        target = empty(expected.x.size)
        run(kernel, samples, there(expected.gradient), there(expected.switches), there(expected.weights), target)
        close(back(target, *expected.x.shape), expected.of_x)


def product(kernel, rows, columns, depth, left, right, extra, size, splits=1, chunk=None):
    out = empty(size)
    grid = dense.grid(rows, columns, splits)
    run(kernel, grid, there(left), there(right), there(extra), out, rows, columns, depth, chunk or depth)
    return out


def case_dense_forward():
    for rows, columns, depth, relu in ((17, 33, 65, True), (3, 5, 2, False)):
        x, weight, bias = random(rows, depth), random(columns, depth, seed=1), random(columns, seed=2)
        found = back(product(dense.forward(relu), rows, columns, depth, x, weight, bias, rows * columns), rows, columns)
        expected = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
        close(found, np.maximum(expected, 0) if relu else expected)


def case_dense_input_gradient():
    for rows, columns, depth, through in ((17, 34, 10, True), (2, 3, 66, False)):
        gradient, weight, before = random(rows, depth), random(depth, columns, seed=1), np.maximum(random(rows, columns, seed=2), 0)
        out = product(dense.input_gradient(through), rows, columns, depth, gradient, weight, before, rows * columns)
        expected = gradient.astype(np.float64) @ weight
        close(back(out, rows, columns), np.where(before > 0, expected, 0) if through else expected)


def case_dense_weight_gradient():
    for samples, outputs, inputs, most in ((1, 2, 3, 8), (70, 17, 32, 2), (64, 3, 31, 8)):
        gradient, x = random(samples, outputs), random(samples, inputs, seed=1)
        chunk = dense.chunk(samples, most)
        splits = -(-samples // chunk)
        assert splits == (2 if samples == 70 else 1)
        size = outputs * (inputs + 1)
        out = product(
            dense.weight_gradient(), outputs, inputs + 1, samples, gradient, x, np.zeros(1, np.float32), splits * size, splits, chunk
        )
        total = back(out, splits, size).astype(np.float64).sum(axis=0)
        close(total[: outputs * inputs].reshape(outputs, inputs), gradient.T.astype(np.float64) @ x)
        close(total[outputs * inputs :], gradient.astype(np.float64).sum(axis=0))


def lost(logits, y, blocks, first=0):
    samples, classes = logits.shape
    gradient, partials = empty(logits.size), empty(blocks)
    run(ends.loss(classes), blocks, there(logits), there(y), first, gradient, partials, samples)
    return back(partials, blocks).sum(), back(gradient, samples, classes)


def case_loss():
    for samples, blocks in ((1, 1), (70, 2), (70, 1)):
        logits, first = random(samples, 5), 2
        y = np.random.default_rng(1).integers(0, 5, samples + first)
        found, gradient = lost(logits, y, blocks, first)
        tensor = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        expected = F.cross_entropy(tensor, torch.tensor(y[first:]))
        expected.backward()
        close(found, expected.detach().numpy())
        close(gradient, tensor.grad.numpy())


def case_loss_of_large_numbers():
    """Nothing overflows, and a class that does not exist is no number."""
    logits = np.array([[1000, 0, -1000], [-1000, -1000, -1000]], np.float32)
    found, gradient = lost(logits, np.array([1, 0], np.int32), 1)
    close(found, (1000 + np.log(3)) / 2)
    close(gradient, np.array([[1, -1, 0], [-2 / 3, 1 / 3, 1 / 3]]) / 2)
    assert np.isnan(lost(logits, np.array([3, 0]), 1)[0])


def case_update():
    """Every number once, by sums over its own rows; two steps of it as torch's SGD takes them."""
    regions = [ends.Region(37, 256), ends.Region(300, 8), ends.Region(1, 256)]
    counts = np.array([11, 3, 9], np.int32)
    layout = ends.layout(regions)
    rows = counts[layout.regions]
    partials = random(layout.partials)
    sums = [
        partials[begin : begin + count * region.size].reshape(count, region.size).astype(np.float64).sum(axis=0)
        for begin, count, region in zip(layout.begins, counts, regions, strict=True)
    ]
    total = np.concatenate(sums)
    start = random(337, seed=1)
    parameters, velocity, found = there(start), there(np.zeros(337, np.float32)), empty(338)
    expected = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = torch.optim.SGD([expected], lr=0.1, momentum=0.9)
    for train in (0, 1, 1):
        arguments = (there(partials), there(layout.table), there(rows), found, parameters, velocity)
        run(ends.update(), len(rows), *arguments, np.float32(0.1), np.float32(0.9), train)
        close(back(found, 338), total)
        if train:
            expected.grad = torch.tensor(total[:-1])
            optimizer.step()
        close(parameters.copy_to_host(), expected.detach().numpy())


def small_parameters():
    shapes = {
        "conv1.weight": (3, 1, 3, 3), "conv1.bias": (3,), "conv2.weight": (4, 3, 3, 3), "conv2.bias": (4,),
        "dense1.weight": (7, 4), "dense1.bias": (7,), "dense2.weight": (5, 7), "dense2.bias": (5,),
    }  # fmt: skip
    return {name: 0.5 * random(*shape, seed=4) for name, shape in shapes.items()}


class Reference:
    """The network in float64 by torch, which learns."""

    def __init__(self, parameters, learning_rate=0.01, momentum=0.9):
        self.parameters = {name: torch.nn.Parameter(torch.tensor(value, dtype=torch.float64)) for name, value in parameters.items()}
        self.optimizer = torch.optim.SGD(self.parameters.values(), lr=learning_rate, momentum=momentum)

    def logits(self, x):
        return reference.forward(self.parameters, torch.tensor(x, dtype=torch.float64))[-1]

    def gradients(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.logits(x), torch.tensor(y))
        loss.backward()
        return loss.item(), {name: parameter.grad.numpy() for name, parameter in self.parameters.items()}

    def step(self, x, y):
        loss, _ = self.gradients(x, y)
        self.optimizer.step()
        return loss


def case_network():
    """Gradients, losses and parameters over steps of changing batch sizes; from the host and resident with the same bits."""
    rate = 0.05
    network = NumbaCuda(small_parameters(), image=IMAGE, learning_rate=rate)
    exact = Reference(small_parameters(), learning_rate=rate)
    x, y = random(5, *IMAGE), np.array([0, 4, 2, 2, 1])
    found, (_, expected) = network.gradients(x[:3], y[:3]), exact.gradients(x[:3], y[:3])
    assert list(found) == list(expected)
    for name, gradient in found.items():
        assert gradient.shape == expected[name].shape
        close(gradient, expected[name])
    images, classes = network.resident(x), network.resident(y.astype(np.int32))
    for name, gradient in network.gradients(images[:3], classes[:3]).items():
        np.testing.assert_array_equal(gradient, found[name])
    assert [*network._plan(3), "update"] == list(declared(3))
    held = network.memory.held
    for batch in (slice(2, 5), slice(0, 1)):
        close(network.step(images[batch], classes[batch]), exact.step(x[batch], y[batch]))
    assert network.memory.held - held == 4 * len(network._layout.regions)  # how many rows there are with a batch of 1, and nothing else
    assert network.device_memory_bytes() >= network.memory.held
    for name, value in network.parameters().items():
        close(value, exact.parameters[name].detach().numpy())
    assert network.predict(images[1:3]).tolist() == exact.logits(x[1:3]).argmax(dim=1).tolist()
    for wrong in ((x[:0], y[:0]), (x[:2], y[:3]), (x[:2, :, 1:], y[:2]), (x[:2], x[:2])):
        try:
            network.step(*wrong)
        except UsageError:
            continue
        raise AssertionError(f"{[array.shape for array in wrong]} was not refused")
    network.close()


@compiled_cuda
def without_a_barrier(out):
    shared = cuda.shared.array(4, float32)
    thread = cuda.threadIdx.x
    shared[thread] = float32(thread)
    if thread < 2:
        cuda.syncthreads()
    out[0] = shared[3 - thread] + shared[thread - 1]


CASES = {name.removeprefix("case_"): check for name, check in dict(globals()).items() if name.startswith("case_")}


def outcome(check, watching=contextlib.nullcontext):
    """ "ok", or what went wrong; with ``watched`` also what raced."""
    try:
        with watching() as watch:
            check()
        if watch is not None:
            assert watch.accesses > 100
            assert not watch.faults, "\n".join(watch.faults)
    except Exception:
        return traceback.format_exc()
    return "ok"


def faults_of_a_wrong_kernel():
    with watched() as watch:
        cuda_launcher(without_a_barrier, 1, 4, cuda.to_device(np.zeros(1, np.float32)))()
    return watch.faults


if __name__ == "__main__":
    assert CUDA_IS_SIMULATED
    from tests.studies.networks.cuda_watch import watched

    print(json.dumps({**{name: outcome(CASES[name], watched) for name in sys.argv[1:]}, "wrong": faults_of_a_wrong_kernel()}))
