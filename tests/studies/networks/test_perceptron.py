"""The perceptron: the paper's algorithm, gradients against autograd, and the work that it declares."""

import numpy as np
import pytest
import torch

from rooflines.errors import DeviceError
from rooflines_studies.networks.perceptron import Perceptron, initial_parameters, library

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
HOSTS = ("numpy", "torch-cpu")


def batch(count=50, width=784, classes=10, seed=3):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((count, width)).astype(np.float32), generator.integers(0, classes, count)


class PapersAlgorithm:
    """The algorithm as the paper's scripts have it: samples are columns, one-hot classes, every gradient written out."""

    def __init__(self, parameters, learning_rate):
        self.w1, self.b1 = parameters["dense1.weight"], parameters["dense1.bias"][:, None]
        self.w2, self.b2 = parameters["dense2.weight"], parameters["dense2.bias"][:, None]
        self.learning_rate = learning_rate

    def step(self, x, y):
        columns, count = x.T, len(x)
        one_hot = np.eye(10)[y].T
        z1 = self.w1 @ columns + self.b1
        a1 = np.maximum(z1, 0)
        z2 = self.w2 @ a1 + self.b2
        a2 = np.exp(z2) / np.exp(z2).sum(axis=0)
        dz2 = a2 - one_hot
        dw2, db2 = dz2 @ a1.T / count, dz2.sum(axis=1, keepdims=True) / count
        dz1 = self.w2.T @ dz2 * (z1 > 0)
        dw1, db1 = dz1 @ columns.T / count, dz1.sum(axis=1, keepdims=True) / count
        self.w1, self.b1 = self.w1 - self.learning_rate * dw1, self.b1 - self.learning_rate * db1
        self.w2, self.b2 = self.w2 - self.learning_rate * dw2, self.b2 - self.learning_rate * db2
        return -np.log(a2[y, np.arange(count)]).mean()


@pytest.mark.parametrize("name", HOSTS)
def test_it_is_the_papers_algorithm_step_by_step(name):
    parameters = {key: value.astype(np.float64) for key, value in initial_parameters(seed=1).items()}
    x, y = batch()
    ours, papers = Perceptron(library(name), parameters), PapersAlgorithm(parameters, 0.1)
    x = x.astype(np.float64)
    for _ in range(20):
        assert ours.step(x, y) == pytest.approx(papers.step(x, y), rel=1e-12)
        now = ours.parameters()
        np.testing.assert_allclose(now["dense1.weight"], papers.w1, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(now["dense1.bias"], papers.b1[:, 0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(now["dense2.weight"], papers.w2, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(now["dense2.bias"], papers.b2[:, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("widths", [(784, 10, 10), (30, 17, 9, 4), (12, 3)])
def test_gradients_of_every_parameter_are_autograds(name, widths):
    parameters = initial_parameters(widths, seed=2)
    x, y = batch(40, widths[0], widths[-1])
    leaves = {key: torch.tensor(value, dtype=torch.float64, requires_grad=True) for key, value in parameters.items()}
    hidden = torch.tensor(x, dtype=torch.float64)
    layers = len(widths) - 1
    for number in range(1, layers + 1):
        hidden = hidden @ leaves[f"dense{number}.weight"].T + leaves[f"dense{number}.bias"]
        hidden = hidden.relu() if number < layers else hidden
    torch.nn.functional.cross_entropy(hidden, torch.tensor(y)).backward()
    found = Perceptron(library(name), parameters).gradients(x, y)
    assert found.keys() == parameters.keys()
    for key, leaf in leaves.items():
        exact = leaf.grad.numpy()
        assert np.linalg.norm(found[key] - exact) <= 1e-5 * np.linalg.norm(exact), key


def test_libraries_follow_one_curve():
    x, y = batch(200)
    curves = []
    for name in HOSTS:
        network = Perceptron(library(name), seed=4)
        curves.append([network.step(x, y) for _ in range(100)])
    np.testing.assert_allclose(*curves, rtol=1e-4)
    assert curves[0][-1] < 0.5 * curves[0][0]


def test_losses_and_predictions():
    # A loss that softmax alone would make infinite is finite.
    parameters = {key: value * 1000 for key, value in initial_parameters(seed=0).items()}
    assert np.isfinite(Perceptron(library("numpy"), parameters).step(*batch()))
    # Predictions are the largest score.
    network = Perceptron(library("numpy"), seed=5)
    x, _ = batch()
    weights = network.parameters()
    scores = np.maximum(x @ weights["dense1.weight"].T, 0) @ weights["dense2.weight"].T
    np.testing.assert_array_equal(network.predict(x), scores.argmax(axis=1))


def test_declared_work_is_that_of_the_shapes():
    network, count = Perceptron(library("numpy"), widths=(784, 10, 10)), 40
    found = network.operators(*batch(count), rounds=2)
    declared = {(one.operator.name, one.operator.layer): one.operator for one in found}
    product = declared["matrix product", "dense1"]
    assert product.matrix_flops == 2 * count * 784 * 10
    assert product.bytes_read == 4 * (count * 784 + 784 * 10)
    assert product.bytes_written == 4 * count * 10
    gradient = declared["weight gradient", "dense1"]
    assert gradient.matrix_flops == product.matrix_flops
    assert gradient.bytes_read == 4 * (count * 784 + count * 10)
    assert gradient.bytes_written == 4 * 784 * 10
    assert declared["input gradient", "dense2"].bytes_written == 4 * count * 10
    # the images need no gradient: five products in all
    assert sum(one.operator.matrix_flops for one in found) == 2 * 2 * count * 7840 + 3 * 2 * count * 100
    assert declared["gradient descent", "dense1.weight"].bytes == 3 * 4 * 7840
    assert {one.operator.phase for one in found} == {"forward", "backward", "optimizer"}
    assert all(one.seconds > 0 for one in found)


def test_timing_operators_leaves_the_parameters_alone():
    network = Perceptron(library("numpy"), seed=6)
    before = network.parameters()
    network.operators(*batch(), rounds=2)
    for key, value in network.parameters().items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize(("name", "missing"), [("cupy", "CuPy"), ("torch-cuda", "NVIDIA GPU"), ("jax", "unknown array library 'jax'")])
def test_an_absent_library_says_what_is_missing(name, missing):
    with pytest.raises(DeviceError, match=missing):
        library(name)


@pytest.mark.gpu
@NEEDS_GPU
def test_cupy_agrees_with_numpy():
    x, y = batch(200)
    losses = [[Perceptron(library(name), seed=7).step(x, y)] for name in ("numpy", "cupy")]
    np.testing.assert_allclose(*losses, rtol=1e-5)
