"""Small data sets in the formats in which the real ones are distributed, with other pixels."""

import pickle
from pathlib import Path

import numpy as np
from PIL import Image

MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def digits(count, seed=0):
    """Images [N, 28, 28] and classes [N]: each class has a bright row of its own."""
    generator = np.random.default_rng(seed)
    classes = (np.arange(count) % 10).astype(np.uint8)
    images = generator.integers(0, 64, (count, 28, 28), np.uint8)
    images[np.arange(count), 4 + 2 * classes.astype(int)] = 255
    return images, classes


def mnist(folder, train=30, test=12, where="MNIST/raw"):
    """Big-endian headers, then bytes."""
    raw = Path(folder) / where
    raw.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        images, classes = digits(count)
        files = {
            f"{name}-images-idx3-ubyte": np.array([0x803, count, 28, 28], ">i4").tobytes() + images.tobytes(),
            f"{name}-labels-idx1-ubyte": np.array([0x801, count], ">i4").tobytes() + classes.tobytes(),
        }
        for file, content in files.items():
            (raw / file).write_bytes(content)
    return Path(folder)


def mnist_csv(folder, count=60, tests=False):
    """Kaggle's digit-recognizer: train.csv with labels, test.csv without."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    columns = [f"pixel{place}" for place in range(784)]
    images, classes = digits(count)
    rows = np.column_stack((classes, images.reshape(count, -1)))
    np.savetxt(folder / "train.csv", rows, fmt="%d", delimiter=",", header=",".join(["label", *columns]), comments="")
    kept, names = (rows[:20], ["label", *columns]) if tests else (rows[:20, 1:], columns)
    np.savetxt(folder / "test.csv", kept, fmt="%d", delimiter=",", header=",".join(names), comments="")
    return folder


def cifar(folder, classes=10, each=20):
    """CIFAR-10 or CIFAR-100: pickled rows of 3072 bytes, red, green and blue one after the other."""
    inside = Path(folder) / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
    inside.mkdir(parents=True)
    generator = np.random.default_rng(0)
    labels = "labels" if classes == 10 else "fine_labels"
    files = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"] if classes == 10 else ["train", "test"]
    for name in files:
        batch = {"data": generator.integers(0, 256, (each, 3072), np.uint8), labels: [index % classes for index in range(each)]}
        (inside / name).write_bytes(pickle.dumps(batch))
    key, name = ("label_names", "batches.meta") if classes == 10 else ("fine_label_names", "meta")
    (inside / name).write_bytes(pickle.dumps({key: [f"class{place}" for place in range(classes)]}))
    return Path(folder)


def picture(path, value=0, size=(40, 30)):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(abs(value)).integers(0, 60, (*size, 3), np.uint8)
    Image.fromarray((noise + value % 190).astype(np.uint8)).save(path)


def tiny_imagenet(folder, classes=2, each=12, tests=6):
    """Training images by class, validation images in one folder with their classes in a file."""
    root = Path(folder) / "tiny-imagenet-200"
    names = [f"n{place:08}" for place in range(classes)]
    for place, name in enumerate(names):
        for index in range(each):
            picture(root / "train" / name / "images" / f"{name}_{index}.JPEG", 90 * place, (64, 64))
        (root / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t63\t63\n")
    rows = []
    for index in range(tests):
        picture(root / "val" / "images" / f"val_{index}.JPEG", 90 * (index % classes), (64, 64))
        rows.append(f"val_{index}.JPEG\t{names[index % classes]}\t0\t0\t63\t63")
    (root / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    return Path(folder)


def photographs(folder, layout="train/{name}/{name}.{index}.jpg", tests="test/{name}/{name}.{index}.jpg", train=8, test=4):
    """Cats and dogs with names by ``layout``; without ``tests``, one set."""
    for pattern, count in ((layout, train), (tests, test)):
        for place, name in enumerate(("cat", "dog")):
            for index in range(count if pattern else 0):
                picture(Path(folder) / pattern.format(name=name, index=index, Name=name.capitalize()), 100 * place)
    return Path(folder)
