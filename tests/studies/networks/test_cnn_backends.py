"""Every backend that runs here computes the same network: gradients, losses and classes beside float64 autograd."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from rooflines.errors import UsageError
from rooflines.kernels.tf32 import tf32
from rooflines_studies.networks import cnn
from rooflines_studies.networks.cnn_numba import NumbaCpu
from rooflines_studies.networks.cnn_numba import work as numba_work
from rooflines_studies.networks.cnn_torch import TorchCnn
from tests.studies.networks import reference

# Takes seconds to compile, to start or to load.
pytestmark = pytest.mark.ci


def torch_cuda(**keywords):
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return TorchCnn("cuda", **keywords)


BACKENDS = {"numba-cpu": NumbaCpu, "torch-cpu": TorchCnn, "torch-cuda": torch_cuda}
MARKS = {"torch-cuda": pytest.mark.gpu}
every_backend = pytest.mark.parametrize("backend", [pytest.param(name, marks=MARKS.get(name, ())) for name in BACKENDS])


@pytest.fixture(autouse=True)
def whole_precision():
    """Convolutions on a GPU in all of float32, which torch does not do by itself."""
    with tf32(False):
        yield


@pytest.fixture(scope="module")
def networks():
    """One network of each backend that a test asks for, with parameters that are not those a network has by itself."""
    made = {}

    def network(name):
        if name not in made:
            made[name] = BACKENDS[name](parameters=cnn.initial_parameters(7))
        return made[name]

    yield network
    for one in made.values():
        one.close()


@every_backend
def test_parameters_are_those_given_and_a_copy(backend, networks):
    given, found = cnn.initial_parameters(7), networks(backend).parameters()
    assert networks(backend).name == backend
    assert list(found) == list(cnn.PARAMETERS)
    assert all((found[name] == given[name]).all() and found[name].dtype == np.float32 for name in given)
    found["conv1.bias"][:] = 1
    assert not networks(backend).parameters()["conv1.bias"].any()


@every_backend
@pytest.mark.parametrize(("count", "seed"), [(1, 0), (7, 2), (100, 4)])
def test_gradients_are_autograds(backend, count, seed, networks):
    network = networks(backend)
    parameters = network.parameters()
    x, y = reference.batch(parameters, count, seed)
    _, expected = reference.gradients(parameters, x, y)
    found = network.gradients(x, y)
    assert list(found) == list(expected)
    errors = {name: reference.error(found[name], expected[name]) for name in expected}
    assert max(errors.values()) < reference.GRADIENT_TOLERANCE, errors
    # asking changes nothing
    assert all((parameters[name] == value).all() for name, value in network.parameters().items())


@every_backend
def test_one_step_is_torchs_sgd(backend):
    network = BACKENDS[backend](parameters=cnn.initial_parameters(1), learning_rate=0.02, momentum=0.8)
    before = network.parameters()
    x, y = reference.batch(before, 20, 0)
    loss, first = reference.gradients(before, x, y)
    assert network.step(x, y) == pytest.approx(loss, rel=1e-5)
    between = network.parameters()
    for name in before:
        # at first the momentum is the gradient
        np.testing.assert_allclose(between[name], before[name] - 0.02 * first[name], atol=2e-6)
    _, second = reference.gradients(between, x, y)
    network.step(network.resident(x), network.resident(y))
    for name, value in network.parameters().items():
        np.testing.assert_allclose(value, between[name] - 0.02 * (0.8 * first[name] + second[name]), atol=2e-6)


@pytest.fixture(scope="module")
def hundred():
    """Parameters, a hundred batches of which every fifth is smaller, and the losses that float64 has on the way."""
    parameters, generator = cnn.initial_parameters(0), np.random.default_rng(0)
    prototypes = generator.standard_normal((cnn.CLASSES, *cnn.IMAGE))
    batches = []
    for step in range(100):
        y = generator.integers(0, cnn.CLASSES, 24 if step % 5 < 4 else 9)
        batches.append(((prototypes[y] + generator.standard_normal((len(y), *cnn.IMAGE))).astype(np.float32), y))
    losses = reference.losses(parameters, batches)
    assert np.mean(losses[-10:]) < 0.1 * np.mean(losses[:10])
    return parameters, batches, losses


@every_backend
def test_losses_of_a_hundred_steps_agree(backend, hundred):
    parameters, batches, expected = hundred
    network = BACKENDS[backend](parameters=parameters)
    found = [network.step(x, y) for x, y in batches]
    # every loss on the way is that of float64 but for what float32 rounds
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    x, y = (np.concatenate(parts) for parts in zip(*batches[-10:], strict=True))
    assert (network.predict(x) == y).mean() > 0.95


@pytest.mark.slow
def test_compiled_torch_computes_the_same(hundred):
    parameters, batches, _ = hundred
    same = [batch for batch in batches if len(batch[1]) == 24]  # another size is compiled again
    network = TorchCnn("cpu", parameters, compile=True)
    assert network.name == "torch-cpu-compile"
    x, y = reference.batch(parameters, 24, 0)
    _, expected = reference.gradients(parameters, x, y)
    found = network.gradients(x, y)
    assert max(reference.error(found[name], expected[name]) for name in expected) < reference.GRADIENT_TOLERANCE
    losses = [network.step(x, y) for x, y in same]
    np.testing.assert_allclose(losses, reference.losses(parameters, same), rtol=1e-3, atol=1e-4)
    # its step is one piece; the operators of the layers are what is timed
    assert [time.operator for time in network.operators(x, y, rounds=1)] == list(cnn.work(24))


@every_backend
@pytest.mark.parametrize("count", [1, 33])
def test_predictions_are_the_largest_logits(backend, count, networks):
    network = networks(backend)
    x, _ = reference.batch(network.parameters(), count, 9)
    *_, logits = reference.forward(reference.tensors(network.parameters()), torch.tensor(x, dtype=torch.float64))
    best = logits.topk(2).values
    clear = (best[:, 0] - best[:, 1] > 1e-4).numpy()
    classes = network.predict(network.resident(x))
    assert classes.dtype == np.int64
    assert classes[clear].tolist() == logits.argmax(1).numpy()[clear].tolist()


@every_backend
def test_equal_maxima_send_their_gradient_to_the_first(backend):
    # GIVEN a conv1 that says 1 wherever it looks, and a conv2 that adds such numbers up without rounding: all in a window are equal
    parameters = cnn.initial_parameters(7)
    parameters["conv1.weight"][:] = 0
    parameters["conv1.bias"][:] = 1
    parameters["conv2.weight"][:] = np.round(64 * parameters["conv2.weight"]) / 64
    network = BACKENDS[backend](parameters=parameters)
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((16, *cnn.IMAGE)).astype(np.float32), generator.integers(0, cnn.CLASSES, 16)
    # THEN conv1's gradient is made of the pixels below the first of each window, and of nothing else
    _, expected = reference.gradients(parameters, x, y)
    found = network.gradients(x, y)
    assert max(reference.error(found[name], expected[name]) for name in expected) < reference.GRADIENT_TOLERANCE


@every_backend
@pytest.mark.parametrize("position", [(0, 0), (24, 14), (14, 24)])
def test_not_a_number_is_seen_in_the_loss(backend, position):
    # row 24 reaches the loss through the lower row of conv2's last windows only, which is not looked at first
    network = BACKENDS[backend]()
    x = np.ones((9, *cnn.IMAGE), np.float32)
    x[4, 0, position[0], position[1]] = np.nan
    assert math.isnan(network.step(x, np.arange(9)))


@every_backend
def test_operators_are_timed_and_leave_the_network_as_it_was(backend, networks):
    network = networks(backend)
    x, y = reference.batch(network.parameters(), 24, 1)
    x, y = network.resident(x), network.resident(y)
    before, gradients = network.parameters(), network.gradients(x, y)
    times = network.operators(x, y, rounds=2)
    declared = numba_work(24, network.threads) if backend == "numba-cpu" else cnn.work(24)
    assert [time.operator for time in times] == list(declared)
    assert all(time.seconds > 0 and time.rounds == 2 for time in times)
    assert all((before[name] == value).all() for name, value in network.parameters().items())
    # cuDNN adds gradients of weights up in any order, so that they differ in their last bits from call to call
    same = partial(np.allclose, rtol=1e-4, atol=1e-6) if backend == "torch-cuda" else np.array_equal
    assert all(same(gradients[name], value) for name, value in network.gradients(x, y).items())


@every_backend
def test_only_a_device_of_its_own_has_memory(backend, networks):
    memory = networks(backend).device_memory_bytes()
    assert memory is None if "cpu" in backend else memory > 0


def test_batches_that_do_not_fit_are_refused(networks):
    network = networks("numba-cpu")
    good = np.zeros((3, *cnn.IMAGE), np.float32)
    classes = [0, 1, 2]
    for x, y in (
        (good, [0, 1]), (good, [0, 1, 10]), (good, [0, -1, 1]), (good[:, :, :27], classes), (good[:0], []),
        (good.reshape(3, -1), classes),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            network.step(x, np.array(y, np.int64))
