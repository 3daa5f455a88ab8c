"""The images that studies train on: MNIST from a folder, scikit-learn's digits scaled up, or synthetic ones;
always labeled.

Nothing is downloaded. MNIST is read from Kaggle's ``train.csv``, or as torchvision stores it. Where there is
none, accuracy is measured on the digits, which are real but few, and speed on synthetic images of MNIST's
size, which are many but mean nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflines.ext import DataError, arg, held_out_digits, read_images
from rooflines_studies.records import DataName, ImageFacts

MEAN = 0.1307
STANDARD_DEVIATION = 0.3081
MNIST_TRAIN = 60_000
MNIST_TEST = 10_000
# MNIST's digits are 20 pixels high in an image of 28.
_INNER = 20
# Held out of a CSV file for tests: as many images as in the from-scratch paper.
_CSV_TEST = 1000
_SPLIT_SEED = 7

LABELS: dict[DataName, str] = {
    "mnist": "MNIST",
    "digits": "scikit-learn's 8x8 digits scaled to 28x28 (not MNIST)",
    "synthetic": "synthetic images of MNIST's size (accuracy not meaningful)",
}


class LabeledImages(NamedTuple):
    """Images as bytes [N, 28, 28] and their classes [N], for training and for testing."""

    name: DataName
    train_images: NDArray[np.uint8]
    train_classes: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_classes: NDArray[np.int64]
    remark: str = ""

    @property
    def facts(self) -> ImageFacts:
        """What a report says of it."""
        label = LABELS[self.name] + (f" ({self.remark})" if self.remark else "")
        return ImageFacts(
            name=self.name,
            label=label,
            train_samples=len(self.train_images),
            test_samples=len(self.test_images),
        )


def load(
    name: DataName,
    data_dir: str | None = None,
    *,
    seed: int = 0,
    train_samples: int | None = None,
    test_samples: int | None = None,
) -> LabeledImages:
    """The data set called ``name``; at most ``train_samples`` and ``test_samples`` of it, the first ones.

    Raises DataError where it is not there.
    """
    if name == "mnist":
        found = _mnist(data_dir)
    elif name == "digits":
        found = _digits()
    else:
        return _synthetic(seed, train_samples or MNIST_TRAIN, test_samples or MNIST_TEST)
    return found._replace(
        train_images=found.train_images[:train_samples],
        train_classes=found.train_classes[:train_samples],
        test_images=found.test_images[:test_samples],
        test_classes=found.test_classes[:test_samples],
    )


def or_synthetic(name: DataName, data_dir: str | None) -> DataName:
    """Return ``name``, or the synthetic images that replace MNIST where there is no folder with it."""
    return "synthetic" if name == "mnist" and data_dir is None else name


def normalized(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes [N, 28, 28] as the network's input [N, 1, 28, 28]: (pixel / 255 - mean) / standard deviation,
    MNIST's constants."""
    scaled = images.astype(np.float32)[:, None]
    scaled *= 1 / 255 / STANDARD_DEVIATION
    scaled -= MEAN / STANDARD_DEVIATION
    return scaled


def padded(count: int, batch_size: int) -> NDArray[np.int64]:
    """Numbers of samples that fill whole batches: 0 ... ``count`` - 1, and from the start again to the end of
    the last batch."""
    return np.arange(-(-count // batch_size) * batch_size) % count


def _mnist(data_dir: str | None) -> LabeledImages:
    if data_dir is None:
        raise DataError("MNIST requires a folder.", hint=f"Give it as {arg('data_dir')}.")
    names = ("train.csv", "mnist_train.csv")
    csv = next((path for name in names if (path := Path(data_dir).expanduser() / name).is_file()), None)
    if csv is not None:
        return _mnist_csv(csv)
    try:
        train, test, remark = read_images("mnist", data_dir, "MNIST")
    except DataError as error:
        raise DataError(
            error.marked_message,
            hint=f"{error.marked_hint} Or FOLDER/train.csv with the columns label, pixel0, ...",
        ) from None
    images, test_images = np.asarray(train.images), np.asarray(test.images)
    return LabeledImages(
        "mnist", images, np.asarray(train.labels), test_images, np.asarray(test.labels), remark
    )


def _mnist_csv(path: Path) -> LabeledImages:
    """Kaggle's CSV files. Without a test file with labels, samples are held out, the same on every
    machine."""
    images, classes = _digits_of(path)
    tests = path.with_name(path.name.replace("train", "test"))
    if tests.is_file() and _first_column(tests) == "label":
        return LabeledImages("mnist", images, classes, *_digits_of(tests))
    held_out = min(_CSV_TEST, len(images) // 5)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    test, train = order[:held_out], order[held_out:]
    remark = f"of {path.name}, {held_out:,} images held out for tests"
    return LabeledImages("mnist", images[train], classes[train], images[test], classes[test], remark)


def _first_column(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().partition(",")[0].strip().strip('"')


def _digits_of(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images and classes in a CSV file: a column ``label`` and 784 of pixels."""
    import pandas as pd

    try:
        values = pd.read_csv(path).to_numpy()
    except (OSError, ValueError) as error:
        why, _, _ = str(error).partition("\n")
        raise DataError(f"{str(path)!r} cannot be read as CSV ({why}).") from None
    if _first_column(path) != "label" or values.ndim != 2 or values.shape[1] != 785 or not len(values):
        raise DataError(f"{str(path)!r} does not have the columns label, pixel0, ..., pixel783.")
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 255 or values[:, 0].max() > 9:
        raise DataError(f"{str(path)!r} has values that are no pixels (0 to 255) or no labels (0 to 9).")
    return values[:, 1:].astype(np.uint8).reshape(-1, 28, 28), values[:, 0].astype(np.int64)


def _digits() -> LabeledImages:
    (train, train_classes), (test, test_classes) = held_out_digits()
    images = [scaled_up(one.astype(np.float32)) for one in (train, test)]
    return LabeledImages("digits", images[0], train_classes, images[1], test_classes)


def scaled_up(images: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Images [N, 8, 8] from 0 to 255 as [N, 28, 28]: bilinear to 20 x 20, with MNIST's border of 4."""
    size = images.shape[1]
    centers = (np.arange(_INNER) + 0.5) * size / _INNER - 0.5
    low = np.floor(centers).astype(int)
    share = (centers - low).astype(np.float32)
    weights = np.zeros((_INNER, size), np.float32)
    weights[np.arange(_INNER), low.clip(0, size - 1)] += 1 - share
    weights[np.arange(_INNER), (low + 1).clip(0, size - 1)] += share
    inner = weights @ images @ weights.T
    border = (28 - _INNER) // 2
    return np.pad(inner.round().astype(np.uint8), ((0, 0), (border, border), (border, border)))


def _synthetic(seed: int, train_samples: int, test_samples: int) -> LabeledImages:
    """A blurred random picture for each class, with noise: enough for a falling loss, not for a meaningful
    accuracy."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 192, (10, 7, 7), np.uint8)
    pictures = coarse.repeat(4, axis=1).repeat(4, axis=2)

    def some(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        classes = generator.integers(0, 10, count)
        return pictures[classes] + generator.integers(0, 64, (count, 28, 28), np.uint8), classes

    return LabeledImages("synthetic", *some(train_samples), *some(test_samples))
