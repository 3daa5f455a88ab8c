"""Labeled images in the folders in which data sets are distributed, as torchvision reads them, and folders of
photographs.

Each reader returns a training and a test set without transforms. An error names the file or folder and the
expected layout. Checksums are not compared.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.arguments import arg
from rooflines.errors import DataError, first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Which samples are held out where a data set has no test set is the same on every machine.
SPLIT_SEED = 7
# Held out for tests: one image in five.
_HELD_OUT = 5
# The class in the name of a file: ``cat`` of ``cat.0.jpg``.
_PREFIX = re.compile(r"([A-Za-z]+)[._ -]*\d+$")
_TRAINING = ("train", "training_set", "training")
_TESTS = ("test", "val", "valid", "validation", "test_set", "testing")

_LAYOUTS = {
    "mnist": "Expected FOLDER/MNIST/raw, FOLDER/raw or FOLDER with train-images-idx3-ubyte, "
    "train-labels-idx1-ubyte, "
    "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (decompressed).",
    "cifar10": (
        "Expected FOLDER/cifar-10-batches-py with data_batch_1 to data_batch_5, test_batch and batches.meta."
    ),
    "cifar100": "Expected FOLDER/cifar-100-python with train, test and meta.",
    "tiny-imagenet": "Expected FOLDER/tiny-imagenet-200/train/CLASS/images/*.JPEG and val, "
    "as in the archive.",
    "folder": "Expected FOLDER/train/CLASS/IMAGE and FOLDER/test/CLASS/IMAGE (training_set, test_set and "
    "val are found as well), "
    "FOLDER/CLASS/IMAGE, or FOLDER/train/CLASS.NUMBER.jpg.",
}


@dataclass(frozen=True, slots=True)
class Images:
    """Stored images, decoded one by one: arrays [H, W] or [H, W, C] of bytes, JPEG files in memory, or paths.
    ``labels`` are indices of ``classes``. ``count`` may be larger than the number of images, which then
    repeat."""

    images: Sequence[Any] | NDArray[np.uint8]
    labels: Any
    classes: tuple[str, ...] = ()
    count: int | None = None

    def __len__(self) -> int:
        return len(self.labels) if self.count is None else self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The image at ``index``, as PIL has it, and its class; raises DataError for a file that is no
        image."""
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
            why = (
                "its format is not known" if isinstance(error, UnidentifiedImageError) else first_line(error)
            )
            raise DataError(
                f"{str(found)!r} cannot be decoded as an image: {why}.",
                hint="Remove the file, or replace it.",
            ) from None


class Read(NamedTuple):
    """The two sets of a folder, and a remark on how they were divided; empty for none."""

    train: Images
    test: Images
    remark: str = ""


def read_images(name: str, data_dir: str, title: str) -> Read:
    """Return the data set ``name``, called ``title``, in ``data_dir``; raises DataError where the folder does
    not hold it."""
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise DataError(f"{arg('data_dir', data_dir)} is not a directory.", hint=_LAYOUTS[name])
    try:
        read = _READERS[name](folder)
        train, test = read.train.classes, read.test.classes
        if train != test:
            raise DataError(
                f"the classes to train on ({_listed(train)}) are not those to test on ({_listed(test)})."
            )
        if len(train) < 2:
            raise DataError(f"{str(folder)!r} has images of fewer than two classes ({_listed(train)}).")
    except ImportError:
        raise
    except Exception as error:  # torchvision raises a different type for each kind of missing or corrupt file
        why = error.message if isinstance(error, DataError) else f"{first_line(error)}."
        raise DataError(
            f"{data_dir!r} holds no {title} that can be read: {why}", hint=_LAYOUTS[name]
        ) from None
    return read


def _listed(classes: Sequence[str]) -> str:
    more = f" and {len(classes) - 4} more" if len(classes) > 4 else ""
    return ", ".join(classes[:4]) + more if classes else "none"


def _published(name: str, folder: Path) -> Read:
    """MNIST or CIFAR as torchvision reads them, from files with any checksum."""
    import numpy as np
    from torchvision import datasets

    changed: dict[str, Any]
    if name == "mnist":
        places = (folder / "MNIST" / "raw", folder / "raw", folder)
        inside = next((place for place in places if (place / "train-images-idx3-ubyte").is_file()), places[0])
        kind, size, changed = (
            datasets.MNIST,
            28,
            {"raw_folder": str(inside), "_check_exists": lambda _: True},
        )
    else:
        kind, size = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100, 32
        folder = folder.parent if folder.name == kind.base_folder else folder
        inside = folder / kind.base_folder
        changed = {"_check_integrity": lambda _: True, "meta": {**kind.meta, "md5": None}}
    sets = []
    for part in ("training", "test"):
        try:
            data = type(kind.__name__, (kind,), changed)(str(folder), train=part == "training")
            images, labels = np.asarray(data.data), np.asarray(data.targets)
            if images.shape[:3] != (len(labels), size, size) or labels.max() >= len(data.classes):
                raise DataError(
                    f"images of {list(images.shape)}, {len(labels):,} labels up to {labels.max(initial=0)}"
                )
        except Exception as error:
            raise DataError(f"the {part} set in {str(inside)!r} is corrupt ({first_line(error)}).") from None
        sets.append(Images(images, labels, tuple(data.classes)))
    return Read(sets[0], sets[1])


def _tiny_imagenet(folder: Path) -> Read:
    folder = next(
        (root for root in (folder / "tiny-imagenet-200", folder) if (root / "train").is_dir()), folder
    )
    train = _of_classes(folder / "train")
    annotations = folder / "val" / "val_annotations.txt"
    if not annotations.is_file():
        return Read(train, _of_classes(folder / "val"))
    rows = [
        line.split("\t")[:2] for line in annotations.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    paths = [folder / "val" / "images" / row[0] for row in rows]
    for path, row in zip(paths, rows, strict=True):
        if len(row) < 2 or row[1] not in train.classes:
            raise DataError(f"{str(annotations)!r} gives {path.name!r} no class of the training set.")
        if not path.is_file():
            raise DataError(f"{str(path)!r} is missing, which {annotations.name} names.")
    return Read(train, Images(paths, [train.classes.index(row[1]) for row in rows], train.classes))


def _photographs(folder: Path) -> Read:
    """Folders for training and test, or one folder of which a part is held out, the same on every machine."""
    import numpy as np

    inner = [path for path in folder.iterdir() if path.is_dir()]
    if (
        len(inner) == 1
        and inner[0].name not in (*_TRAINING, *_TESTS)
        and any(path.is_dir() for path in inner[0].iterdir())
    ):
        folder = inner[0]  # an archive that was unpacked into a folder of its own
    train_folder, test_folder = _part(folder, _TRAINING), _part(folder, _TESTS)
    if test_folder is not None and train_folder is None:
        raise DataError(f"it has a folder {test_folder.name}, but none to train on.")
    every = _of_classes(train_folder or folder)
    if test_folder is not None and (test := _of_classes(test_folder)).classes:
        return Read(every, test)
    held_out = max(1, len(every) // _HELD_OUT)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(every))
    parts = [
        Images(
            [every.images[place] for place in part], [every.labels[place] for place in part], every.classes
        )
        for part in (order[held_out:], order[:held_out])
    ]
    return Read(parts[0], parts[1], f"a fifth ({held_out:,}) held out for tests")


def _part(folder: Path, names: Sequence[str]) -> Path | None:
    """The first folder of these ``names``, without a repeated level (``training_set/training_set``)."""
    part = next((folder / name for name in names if (folder / name).is_dir()), None)
    return part / part.name if part is not None and (part / part.name).is_dir() else part


def _of_classes(folder: Path) -> Images:
    """The images in ``folder`` by class: the folder that they are in, or else the word before the number in
    their names.

    Files without either are left out.
    """
    from torchvision.datasets import ImageFolder
    from torchvision.datasets.folder import is_image_file

    if any(path.is_dir() for path in folder.iterdir()):
        found = ImageFolder(str(folder))
        return Images([Path(path) for path, _ in found.samples], found.targets, tuple(found.classes))
    words = {
        path: word[1]
        for path in sorted(folder.iterdir())
        if is_image_file(path.name) and (word := _PREFIX.match(path.stem))
    }
    classes = tuple(sorted({*words.values()}))
    return Images([*words], [classes.index(word) for word in words.values()], classes)


_READERS: dict[str, Callable[[Path], Read]] = {
    **{name: functools.partial(_published, name) for name in ("mnist", "cifar10", "cifar100")},
    "tiny-imagenet": _tiny_imagenet,
    "folder": _photographs,
}
