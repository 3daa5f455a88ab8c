"""The images that studies train on: MNIST from a folder, scikit-learn's digits scaled up, or synthetic ones; always labeled.

Nothing is downloaded. MNIST is read in every layout of ``image_files.py``. Where there is none, accuracy is measured on the digits,
which are real but few, and speed on synthetic images of MNIST's size, which are many but mean nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflines.ext import DataError, arg, held_out_digits, read_images
from rooflines_studies.records import DataFacts, DataName

MEAN = 0.1307
STANDARD_DEVIATION = 0.3081
MNIST_TRAIN = 60_000
MNIST_TEST = 10_000
# MNIST's digits are 20 pixels high in an image of 28.
_INNER = 20

LABELS: dict[DataName, str] = {
    "mnist": "MNIST",
    "digits": "scikit-learn's 8x8 digits scaled to 28x28 (not MNIST)",
    "synthetic": "synthetic images of MNIST's size (accuracy not meaningful)",
}


class DataSet(NamedTuple):
    """Images as bytes [N, 28, 28] and their classes [N], for training and for testing."""

    name: DataName
    train_images: NDArray[np.uint8]
    train_classes: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_classes: NDArray[np.int64]
    remark: str = ""

    @property
    def facts(self) -> DataFacts:
        """What a report says of it."""
        label = LABELS[self.name] + (f" ({self.remark})" if self.remark else "")
        return DataFacts(name=self.name, label=label, train_samples=len(self.train_images), test_samples=len(self.test_images))


def load(
    name: DataName, data_dir: str | None = None, *, seed: int = 0, train_samples: int | None = None, test_samples: int | None = None
) -> DataSet:
    """The data set called ``name``; at most ``train_samples`` and ``test_samples`` of it, the first ones.

    Raises DataError where it is not there.
    """
    if name == "synthetic":
        return _synthetic(seed, train_samples or MNIST_TRAIN, test_samples or MNIST_TEST)
    remark = ""
    if name == "digits":
        (train, classes), (test, test_classes) = held_out_digits()
        images, test_images = scaled_up(train), scaled_up(test)
    elif data_dir is None:
        raise DataError("MNIST requires a folder.", hint=f"Give it as {arg('data_dir')}.")
    else:
        *read, remark = read_images("mnist", data_dir, "MNIST")
        images, classes, test_images, test_classes = (np.asarray(part) for one in read for part in (one.images, one.labels))
    train_part, test_part = slice(train_samples), slice(test_samples)
    return DataSet(name, images[train_part], classes[train_part], test_images[test_part], test_classes[test_part], remark)


def or_synthetic(name: DataName, data_dir: str | None) -> DataName:
    """Return ``name``, or the synthetic images that replace MNIST where there is no folder with it."""
    return "synthetic" if name == "mnist" and data_dir is None else name


def normalized(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes [N, 28, 28] as the network's input [N, 1, 28, 28]: (pixel / 255 - mean) / standard deviation, MNIST's constants."""
    scaled = images.astype(np.float32)[:, None]
    scaled *= 1 / 255 / STANDARD_DEVIATION
    scaled -= MEAN / STANDARD_DEVIATION
    return scaled


def padded(count: int, batch_size: int) -> NDArray[np.int64]:
    """Numbers of samples that fill whole batches: 0 ... ``count`` - 1, and from the start again to the end of the last batch."""
    return np.arange(-(-count // batch_size) * batch_size) % count


def scaled_up(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images [N, 8, 8] from 0 to 255 as [N, 28, 28]: bilinear to 20 x 20, with MNIST's border of 4."""
    size = images.shape[1]
    centers = (np.arange(_INNER) + 0.5) * size / _INNER - 0.5
    low = np.floor(centers).astype(int)
    share = (centers - low).astype(np.float32)
    weights = np.zeros((_INNER, size), np.float32)
    rows = np.arange(_INNER)
    weights[rows, low.clip(0, size - 1)] += 1 - share
    weights[rows, (low + 1).clip(0, size - 1)] += share
    inner = weights @ images.astype(np.float32) @ weights.T
    border = (28 - _INNER) // 2
    return np.pad(inner.round().astype(np.uint8), ((0, 0), (border, border), (border, border)))


def _synthetic(seed: int, train_samples: int, test_samples: int) -> DataSet:
    """A blurred random picture for each class, with noise: enough for a falling loss, not for a meaningful accuracy."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 192, (10, 7, 7), np.uint8)
    pictures = coarse.repeat(4, axis=1).repeat(4, axis=2)

    def some(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        classes = generator.integers(0, 10, count)
        return pictures[classes] + generator.integers(0, 64, (count, 28, 28), np.uint8), classes

    return DataSet("synthetic", *some(train_samples), *some(test_samples))
