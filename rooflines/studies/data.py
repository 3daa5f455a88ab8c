"""The images that studies train on: MNIST from a folder, scikit-learn's digits scaled up, or synthetic ones; always labelled.

Nothing is downloaded. MNIST is what torchvision's data set class finds. Where there is none, accuracy is measured on the digits, which
are real but few, and speed on synthetic images of MNIST's size, which are many but mean nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflines.arguments import arg
from rooflines.errors import DataError
from rooflines.studies.records import DataFacts, DataName

MEAN: Final = 0.1307
STANDARD_DEVIATION: Final = 0.3081
MNIST_TRAIN: Final = 60_000
MNIST_TEST: Final = 10_000
_FILES: Final = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
# A fifth of the digits is held out; which, is the same on every machine.
DIGITS_TEST: Final = 360
_SPLIT_SEED: Final = 7
# MNIST's digits are 20 pixels high in an image of 28.
_INNER: Final = 20

LABELS: Final[dict[DataName, str]] = {
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

    @property
    def facts(self) -> DataFacts:
        """What a report says of it."""
        return DataFacts(
            name=self.name, label=LABELS[self.name], train_samples=len(self.train_images), test_samples=len(self.test_images)
        )


def load(
    name: DataName, data_dir: str | None = None, *, seed: int = 0, train_samples: int | None = None, test_samples: int | None = None
) -> DataSet:
    """The data set called ``name``; at most ``train_samples`` and ``test_samples`` of it, the first ones.

    Raises DataError where it is not there.
    """
    if name == "mnist":
        found = _mnist(data_dir)
    elif name == "digits":
        found = _digits()
    else:
        return _synthetic(seed, train_samples or MNIST_TRAIN, test_samples or MNIST_TEST)
    return DataSet(
        name,
        found.train_images[:train_samples], found.train_classes[:train_samples],
        found.test_images[:test_samples], found.test_classes[:test_samples],
    )  # fmt: skip


def or_synthetic(name: DataName, data_dir: str | None) -> DataName:
    """Return ``name``, or the synthetic images that replace MNIST where there is no folder with it."""
    return "synthetic" if name == "mnist" and data_dir is None else name


def normalised(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes [N, 28, 28] as the network's input [N, 1, 28, 28]: (pixel / 255 - mean) / standard deviation, MNIST's constants."""
    scaled = images.astype(np.float32)[:, None]
    scaled *= 1 / 255 / STANDARD_DEVIATION
    scaled -= MEAN / STANDARD_DEVIATION
    return scaled


def padded(count: int, batch_size: int) -> NDArray[np.int64]:
    """Numbers of samples that fill whole batches: 0 ... ``count`` - 1, and from the start again to the end of the last batch."""
    return np.arange(-(-count // batch_size) * batch_size) % count


def why_no_digits() -> str | None:
    """Why scikit-learn's digits cannot be used here; None where they can."""
    from importlib.util import find_spec

    return None if find_spec("sklearn") else "scikit-learn is not installed (pip install 'rooflines[studies]')"


def _mnist(data_dir: str | None) -> DataSet:
    hint = "Download it to FOLDER/MNIST/raw: torchvision.datasets.MNIST(FOLDER, download=True)"
    if data_dir is None:
        raise DataError("MNIST requires a folder.", hint=f"Give it as {arg('data_dir')}.")
    if not Path(data_dir).is_dir():
        raise DataError(f"{arg('data_dir', data_dir)} is not a directory.", hint=hint)
    from torchvision.datasets import MNIST

    sets = []
    for train in (True, False):
        what = f"no MNIST {'training' if train else 'test'} set can be read in {data_dir!r}"
        try:
            one = MNIST(data_dir, train=train, download=False)
        except Exception as error:  # torchvision believes what a header says: each kind of corruption raises another exception
            raise DataError(f"{what}: {_why_unreadable(data_dir, error)}.", hint=hint) from None
        images, classes = one.data.numpy(), one.targets.numpy().astype(np.int64)
        if images.shape[1:] != (28, 28) or not len(images):
            raise DataError(f"{what}: its images are {images.shape}, not [N, 28, 28].", hint=hint)
        if classes.shape != images.shape[:1]:
            raise DataError(f"{what}: it has {len(images):,} images and {len(classes):,} labels.", hint=hint)
        if classes.max() > 9:
            raise DataError(f"{what}: label {classes.max()} is not one of 10 classes.", hint=hint)
        sets.append((images, classes))
    (train_images, train_classes), (test_images, test_classes) = sets
    return DataSet("mnist", train_images, train_classes, test_images, test_classes)


def _why_unreadable(data_dir: str, error: Exception) -> str:
    """The files that are not there, or else how reading them failed."""
    raw = Path(data_dir) / "MNIST" / "raw"
    missing = [name for name in _FILES if not (raw / name).is_file()]
    if missing:
        return f"{str(raw)!r} lacks {', '.join(missing)}"
    said = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"a file in {str(raw)!r} is corrupt ({type(error).__name__}{': ' if said else ''}{said})"


def _digits() -> DataSet:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            f"scikit-learn's digits are not available: {why_no_digits()}.", hint=f"Or use MNIST with {arg('data_dir')}."
        ) from None
    digits = load_digits()
    images = scaled_up(digits.images.astype(np.float32) * (255 / 16))
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    test, train = order[:DIGITS_TEST], order[DIGITS_TEST:]
    classes = digits.target.astype(np.int64)
    return DataSet("digits", images[train], classes[train], images[test], classes[test])


def scaled_up(images: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Images [N, 8, 8] from 0 to 255 as [N, 28, 28]: bilinear to 20 x 20, with MNIST's border of 4."""
    size = images.shape[1]
    centres = (np.arange(_INNER) + 0.5) * size / _INNER - 0.5
    low = np.floor(centres).astype(int)
    share = (centres - low).astype(np.float32)
    weights = np.zeros((_INNER, size), np.float32)
    weights[np.arange(_INNER), low.clip(0, size - 1)] += 1 - share
    weights[np.arange(_INNER), (low + 1).clip(0, size - 1)] += share
    inner = weights @ images @ weights.T
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
