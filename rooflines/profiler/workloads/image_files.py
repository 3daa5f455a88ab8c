"""Labeled images in the folders and files in which data sets are distributed: MNIST, CIFAR, Tiny-ImageNet, folders of photographs.

Each reader returns a training and a test set without transforms. An error names the file and the expected layout. A file whose checksum
is not the published one is read, with a remark.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rooflines.arguments import arg
from rooflines.errors import DataError, first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Which samples are held out where a data set has no test set is the same on every machine.
SPLIT_SEED: Final = 7
# Held out for tests: of MNIST's CSV file as many images as in the from-scratch paper, of other images one in five.
_CSV_TEST: Final = 1000
_HELD_OUT: Final = 5
_SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# The class in the name of a file: ``cat`` of ``cat.0.jpg``.
_PREFIX: Final = re.compile(r"([A-Za-z]+)[._ -]*\d+$")
_TRAINING: Final = ("train", "training_set", "training")
_TESTS: Final = ("test", "val", "valid", "validation", "test_set", "testing")

# MD5 of the decompressed files of MNIST.
_MNIST: Final = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb", "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea", "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}  # fmt: skip
_DIGITS: Final = tuple("0123456789")
_LAYOUTS: Final = {
    "mnist": "Expected in FOLDER, FOLDER/MNIST/raw or FOLDER/raw: train-images-idx3-ubyte, train-labels-idx1-ubyte, "
    "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (with or without .gz), or train.csv with the columns label, pixel0, ...",
    "cifar10": "Expected FOLDER/cifar-10-batches-py with data_batch_1 to data_batch_5, test_batch and batches.meta.",
    "cifar100": "Expected FOLDER/cifar-100-python with train, test and meta.",
    "tiny-imagenet": "Expected FOLDER/tiny-imagenet-200/train/CLASS/images/*.JPEG and val, as in the archive.",
    "folder": "Expected FOLDER/train/CLASS/IMAGE and FOLDER/test/CLASS/IMAGE (training_set, test_set and val are found as well), "
    "FOLDER/CLASS/IMAGE, or FOLDER/train/CLASS.NUMBER.jpg.",
}


@dataclass(frozen=True, slots=True)
class Images:
    """Stored images, decoded one by one: arrays [H, W] or [H, W, C] of bytes, JPEG files in memory, or paths. ``labels`` are indices of
    ``classes``. ``count`` may be larger than the number of images, which then repeat."""

    images: Sequence[Any] | NDArray[np.uint8]
    labels: Any
    classes: tuple[str, ...] = ()
    count: int | None = None

    def __len__(self) -> int:
        return len(self.labels) if self.count is None else self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The image at ``index``, as PIL has it, and its class; raises DataError for a file that is no image."""
        from PIL import Image, UnidentifiedImageError

        if index >= len(self):
            raise IndexError(index)
        place = index % len(self.images)
        found, label = self.images[place], int(self.labels[place])
        if not isinstance(found, bytes | Path):
            return Image.fromarray(found), label
        try:
            with Image.open(io.BytesIO(found) if isinstance(found, bytes) else found) as image:
                return image.convert("RGB"), label
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            why = "its format is not known" if isinstance(error, UnidentifiedImageError) else first_line(error)
            raise DataError(f"{str(found)!r} cannot be decoded as an image: {why}.", hint="Remove the file, or replace it.") from None


class Read(NamedTuple):
    """The two sets of a folder, and a remark on what in it is not as published; empty for none."""

    train: Images
    test: Images
    remark: str = ""


def read_images(name: str, data_dir: str, title: str) -> Read:
    """Return the data set ``name``, called ``title``, in ``data_dir``; raises DataError where the folder does not hold it."""
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise DataError(f"{arg('data_dir', data_dir)} is not a directory.", hint=_LAYOUTS[name])
    try:
        read = _READERS[name](folder)
        train, test = read.train.classes, read.test.classes
        if train != test:
            raise DataError(f"the classes to train on ({_listed(train)}) are not those to test on ({_listed(test)}).")
        if len(train) < 2:
            raise DataError(f"{str(folder)!r} has images of one class only ({_listed(train)}).")
    except DataError as error:
        raise DataError(
            f"{data_dir!r} holds no {title} that can be read: {error.message}", hint=error.marked_hint or _LAYOUTS[name]
        ) from None
    return read


def _split(images: Images, held_out: int, remark: str) -> Read:
    """``images`` with ``held_out`` of them for tests, the same on every machine."""
    import numpy as np

    def at(values: Any, chosen: Any) -> Any:
        return values[chosen] if isinstance(values, np.ndarray) else [values[place] for place in chosen]

    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    train, test = (
        Images(at(images.images, chosen), at(images.labels, chosen), images.classes) for chosen in (order[held_out:], order[:held_out])
    )
    return Read(train, test, remark)


def _listed(classes: Sequence[str]) -> str:
    more = f" and {len(classes) - 4} more" if len(classes) > 4 else ""
    return ", ".join(classes[:4]) + more if classes else "none"


# --- MNIST -----------------------------------------------------------------------------------------------------------------------


def _mnist(folder: Path) -> Read:
    places = (folder / "MNIST" / "raw", folder / "raw", folder / "MNIST", folder)
    raw = next((place for place in places if any(_stored(place, name) for name in _MNIST)), None)
    if raw is None:
        csv = next((path for path in (folder / "train.csv", folder / "mnist_train.csv") if path.is_file()), None)
        if csv is None:
            raise DataError("none of its files is there.")
        return _mnist_csv(csv)
    missing = [name for name in _MNIST if _stored(raw, name) is None]
    if missing:
        raise DataError(f"{str(raw)!r} lacks {', '.join(missing)}.")
    arrays, changed = [], []
    for name, checksum in _MNIST.items():
        path = _stored(raw, name)
        assert path is not None
        try:
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        except (OSError, EOFError) as error:
            raise DataError(f"{str(path)!r} is corrupt ({first_line(error)}).") from None
        arrays.append(_idx(path, content))
        changed += [path.name] if hashlib.md5(content, usedforsecurity=False).hexdigest() != checksum else []
    sets = []
    for part, (images, labels) in {"train": arrays[:2], "t10k": arrays[2:]}.items():
        if images.shape[1:] != (28, 28) or not len(images):
            raise DataError(f"the images of {part} in {str(raw)!r} are {list(images.shape)}, not [N, 28, 28].")
        if labels.shape != images.shape[:1]:
            raise DataError(f"{part} in {str(raw)!r} has {len(images):,} images and {len(labels):,} labels.")
        if labels.max() > 9:
            raise DataError(f"label {labels.max()} of {part} in {str(raw)!r} is not one of 10 classes.")
        sets.append(Images(images, labels.astype("int64"), _DIGITS))
    return Read(sets[0], sets[1], _differs(changed))


def _stored(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _idx(path: Path, content: bytes) -> NDArray[np.uint8]:
    """The array of bytes in a file of MNIST: a magic number (0, 0, 8, dimensions), big-endian sizes, then the values."""
    import numpy as np

    dimensions = content[3] if len(content) > 4 and content[:3] == b"\0\0\x08" else 0
    header = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:header], ">u4").astype(int).tolist() if dimensions and len(content) >= header else []
    if not shape or len(content) != header + int(np.prod(shape)):
        raise DataError(f"{str(path)!r} is corrupt: {len(content):,} bytes do not hold what its header says.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _mnist_csv(path: Path) -> Read:
    """Kaggle's CSV files: a column ``label`` and 784 of pixels. Only a test file with labels is one; else samples are held out."""
    images, labels = _digits_of(path)
    tests = path.with_name(path.name.replace("train", "test"))
    if tests.is_file() and tests != path and _labelled(tests):
        return Read(Images(images, labels, _DIGITS), Images(*_digits_of(tests), _DIGITS))
    held_out = min(_CSV_TEST, len(images) // _HELD_OUT)
    return _split(Images(images, labels, _DIGITS), held_out, f"of {path.name}, {held_out:,} images held out for tests")


def _labelled(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().partition(",")[0].strip().strip('"') == "label"


def _digits_of(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    import numpy as np
    import pandas as pd

    try:
        values = pd.read_csv(path).to_numpy()
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} cannot be read as CSV ({first_line(error)}).") from None
    if not _labelled(path) or values.ndim != 2 or values.shape[1] != 785 or not len(values):
        raise DataError(f"{str(path)!r} does not have the columns label, pixel0, ..., pixel783.")
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 255 or values[:, 0].max() > 9:
        raise DataError(f"{str(path)!r} has values that are no pixels (0 to 255) or no labels (0 to 9).")
    return values[:, 1:].astype(np.uint8).reshape(-1, 28, 28), values[:, 0].astype(np.int64)


# --- CIFAR -----------------------------------------------------------------------------------------------------------------------


def _cifar(name: str) -> Callable[[Path], Read]:
    def read(folder: Path) -> Read:
        from torchvision import datasets
        from torchvision.datasets.utils import check_integrity

        kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
        root = folder.parent if folder.name == kind.base_folder else folder
        inside = root / kind.base_folder
        files = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
        missing = [file for file, _ in files if not (inside / file).is_file()]
        if missing:
            raise DataError(f"{str(inside)!r} lacks {', '.join(missing)}.")
        # Files with another checksum are read as well.
        unchecked = type(kind.__name__, (kind,), {
            "train_list": [(file, None) for file, _ in kind.train_list], "test_list": [(file, None) for file, _ in kind.test_list],
            "meta": {**kind.meta, "md5": None},
        })  # fmt: skip
        sets = []
        for train in (True, False):
            try:
                data = unchecked(str(root), train=train)
            except Exception as error:  # torchvision raises a different type for each kind of corrupt file
                raise DataError(f"a file in {str(inside)!r} is corrupt ({first_line(error)}).") from None
            if data.data.shape[1:] != (32, 32, 3) or len(data.data) != len(data.targets):
                raise DataError(f"{str(inside)!r} has images of {list(data.data.shape)} and {len(data.targets):,} labels.")
            if max(data.targets) >= len(data.classes):
                raise DataError(f"label {max(data.targets)} in {str(inside)!r} is not one of {len(data.classes)} classes.")
            sets.append(Images(data.data, data.targets, tuple(data.classes)))
        return Read(sets[0], sets[1], _differs([file for file, md5 in files if not check_integrity(str(inside / file), md5)]))

    return read


def _differs(files: Sequence[str]) -> str:
    """A remark on files that are not the published ones."""
    listed = f"{', '.join(files[:2])}{f' and {len(files) - 2} more' if len(files) > 2 else ''}"
    return f"not the published files by their checksums: {listed}" if files else ""


# --- image files -----------------------------------------------------------------------------------------------------------------


def _tiny_imagenet(folder: Path) -> Read:
    folder = next((root for root in (folder / "tiny-imagenet-200", folder) if (root / "train").is_dir()), folder)
    train = _of_classes(folder / "train")
    annotations = folder / "val" / "val_annotations.txt"
    if not annotations.is_file():
        return Read(train, _of_classes(folder / "val"))
    rows = [line.split("\t")[:2] for line in annotations.read_text(encoding="utf-8").splitlines() if line.strip()]
    places = {name: place for place, name in enumerate(train.classes)}
    paths = [folder / "val" / "images" / row[0] for row in rows]
    for path, row in zip(paths, rows, strict=True):
        if len(row) < 2 or row[1] not in places:
            raise DataError(f"{str(annotations)!r} gives {path.name!r} no class of the training set.")
        if not path.is_file():
            raise DataError(f"{str(path)!r} is missing, which {annotations.name} names.")
    return Read(train, Images(paths, [places[row[1]] for row in rows], train.classes))


def _photographs(folder: Path) -> Read:
    """Folders for training and test, or one folder of which a part is held out."""
    inner = [path for path in folder.iterdir() if path.is_dir()]
    if len(inner) == 1 and inner[0].name not in (*_TRAINING, *_TESTS) and any(path.is_dir() for path in inner[0].iterdir()):
        folder = inner[0]  # an archive that was unpacked into a folder of its own
    train_folder, test_folder = _part(folder, _TRAINING), _part(folder, _TESTS)
    if test_folder is not None and train_folder is None:
        raise DataError(f"it has a folder {test_folder.name}, but none to train on.")
    every = _of_classes(train_folder or folder)
    test = _of_classes(test_folder) if test_folder is not None and _grouped(test_folder) else None
    if test is not None:
        return Read(every, test)
    held_out = max(1, len(every) // _HELD_OUT)
    return _split(every, held_out, f"a fifth ({held_out:,}) held out for tests")


def _part(folder: Path, names: Sequence[str]) -> Path | None:
    """The first folder of these ``names``, without a repeated level (``training_set/training_set``)."""
    part = next((folder / name for name in names if (folder / name).is_dir()), None)
    return part / part.name if part is not None and (part / part.name).is_dir() else part


def _of_classes(folder: Path) -> Images:
    groups = _grouped(folder)
    if not groups:
        raise DataError(f"{str(folder)!r} has no images in folders of their classes.")
    empty = [name for name, paths in groups.items() if not paths]
    if empty:
        raise DataError(f"{str(folder / empty[0])!r} has no image.")
    rows = [(path, place) for place, paths in enumerate(groups.values()) for path in paths]
    return Images([path for path, _ in rows], [place for _, place in rows], tuple(groups))


def _grouped(folder: Path) -> dict[str, list[Path]]:
    """The images in ``folder`` by class: the folder that they are in, or else the word before the number in their names."""
    if not folder.is_dir():
        return {}
    inner = sorted(inside for inside in folder.iterdir() if inside.is_dir() and not inside.name.startswith(("_", ".")))
    groups = {inside.name: sorted(_only_images(inside.rglob("*"))) for inside in inner}
    if any(groups.values()):
        return groups
    named: dict[str, list[Path]] = {}
    for path in sorted(_only_images(folder.iterdir())):
        if word := _PREFIX.match(path.stem):
            named.setdefault(word[1], []).append(path)
    return named


def _only_images(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")]


_READERS: Final[dict[str, Callable[[Path], Read]]] = {
    "mnist": _mnist, "cifar10": _cifar("cifar10"), "cifar100": _cifar("cifar100"), "tiny-imagenet": _tiny_imagenet,
    "folder": _photographs,
}  # fmt: skip
