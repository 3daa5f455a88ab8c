"""The network in float64 with torch's autograd: what every backend is compared with; and batches on which
float32 must agree with it."""

import numpy as np
import torch
from torch.nn import functional

from rooflines_studies.networks import cnn

# Largest error of a gradient that float32 may make, relative to the largest element of that parameter's gradient.
GRADIENT_TOLERANCE = 1e-5
# How far apart two values must lie that a maximum or a ReLU decides between: ten times what float32 sums of 400 products are off by.
MARGIN = 1e-5


def tensors(parameters):
    """The parameters as float64 leaves."""
    return {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in parameters.items()}


def forward(parameters, x):
    """All layers' values before ReLU and pooling, and the logits."""
    first = functional.conv2d(x, parameters["conv1.weight"], parameters["conv1.bias"])
    second = functional.conv2d(functional.max_pool2d(functional.relu(first), 2), parameters["conv2.weight"], parameters["conv2.bias"])
    flat = functional.max_pool2d(functional.relu(second), 2).flatten(1)
    hidden = functional.linear(flat, parameters["dense1.weight"], parameters["dense1.bias"])
    logits = functional.linear(functional.relu(hidden), parameters["dense2.weight"], parameters["dense2.bias"])
    return first, second, hidden, logits


def gradients(parameters, x, y):
    """The loss and the gradient of each parameter."""
    leaves = tensors(parameters)
    *_, logits = forward(leaves, torch.tensor(x, dtype=torch.float64))
    loss = functional.cross_entropy(logits, torch.tensor(y))
    loss.backward()
    return loss.item(), {name: leaf.grad.numpy() for name, leaf in leaves.items()}


def losses(parameters, batches, learning_rate=cnn.LEARNING_RATE, momentum=cnn.MOMENTUM):
    """The loss before each step of SGD over ``batches``."""
    leaves = tensors(parameters)
    optimizer = torch.optim.SGD(leaves.values(), lr=learning_rate, momentum=momentum)
    found = []
    for x, y in batches:
        optimizer.zero_grad()
        *_, logits = forward(leaves, torch.tensor(x, dtype=torch.float64))
        loss = functional.cross_entropy(logits, torch.tensor(y))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def error(found, expected):
    """The largest difference, relative to the largest element of ``expected``."""
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / np.abs(expected).max()


def margins(parameters, x):
    """For each image, the least distance between values that a maximum or a ReLU chooses from.

    Where it is as small as rounding, float32 may send the gradient another way, and be right.
    """
    with torch.no_grad():
        first, second, hidden, _ = forward(tensors(parameters), torch.tensor(x, dtype=torch.float64))
    found = [hidden.abs().amin(1)]
    for values in (first, second):
        windows = functional.relu(values).unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        largest, other = windows.topk(2, dim=-1).values.unbind(-1)
        # nothing is chosen where all are 0, and then the distance to becoming positive counts
        below = values.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4).amax(-1).abs()
        found.append(torch.where(largest > 0, torch.minimum(largest - other, largest), below).flatten(1).amin(1))
    return torch.stack(found).amin(0).numpy()


def batch(parameters, count, seed):
    """``count`` random images and classes for which every choice is clear."""
    generator = np.random.default_rng(seed)
    images = np.empty((0, *cnn.IMAGE), np.float32)
    while len(images) < count:
        more = generator.standard_normal((count + 8, *cnn.IMAGE)).astype(np.float32)
        images = np.concatenate([images, more[margins(parameters, more) > MARGIN]])
    return images[:count], generator.integers(0, cnn.CLASSES, count)
