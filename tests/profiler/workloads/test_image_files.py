"""Data sets as they are distributed: each layout is found, and what is broken is named."""

import shutil

import numpy as np
import pytest
import torch

from rooflines.errors import DataError, WorkloadError
from rooflines.profiler.workloads.datasets import KINDS, check_batch, find_dataset, make_loader
from rooflines.profiler.workloads.image_files import read_images
from tests import image_data


@pytest.mark.parametrize("where", ["MNIST/raw", "raw", ""])
def test_mnist_is_found_where_its_files_are(tmp_path, where):
    found = read_images("mnist", str(image_data.mnist(tmp_path, where=where)), "MNIST")
    images, classes = image_data.digits(30)
    np.testing.assert_array_equal(found.train.images, images)
    np.testing.assert_array_equal(found.train.labels, classes)
    assert (len(found.train), len(found.test), len(found.train.classes)) == (30, 12, 10)
    assert found.remark == ""


@pytest.mark.parametrize(("name", "classes", "count"), [("cifar10", 10, 100), ("cifar100", 100, 20)])
def test_cifar_is_read_with_other_checksums(tmp_path, name, classes, count):
    folder = image_data.cifar(tmp_path, classes)
    data = find_dataset(name, str(folder), test_samples=5)
    assert (len(data.train), len(data.test), data.classes, data.real) == (count, 5, classes, True)
    again = find_dataset(name, str(next(folder.iterdir())), test_samples=5)  # the inner folder is found as well
    assert [data.test[index][1] for index in range(5)] == [again.test[index][1] for index in range(5)]


def test_tiny_imagenet_has_its_validation_classes_in_a_file(tmp_path):
    folder = image_data.tiny_imagenet(tmp_path)
    for given in (folder, folder / "tiny-imagenet-200"):
        data = find_dataset("tiny-imagenet", str(given))
        assert [data.test[index][1] for index in range(3)] == [0, 1, 0]
        assert data.test[0][0].shape == (3, 64, 64)
        assert data.classes == 2


@pytest.mark.parametrize(("layout", "tests", "sizes"), [
    ("train/{name}/{index}.jpg", "val/{name}/{index}.png", (16, 8)),
    ("training_set/training_set/{name}s/{name}.{index}.jpg", "test_set/test_set/{name}s/{name}.{index}.jpg", (16, 8)),
    ("PetImages/{Name}/{index}.jpg", "", (13, 3)),
    ("train/{name}.{index}.jpg", "", (13, 3)),
    ("{name}/{index}.jpg", "", (13, 3)),
])  # fmt: skip
def test_photographs_are_found_in_the_layouts_of_their_archives(tmp_path, layout, tests, sizes):
    data = find_dataset("folder", str(image_data.photographs(tmp_path, layout, tests)), image_size=32)
    assert (len(data.train), len(data.test), data.classes) == (*sizes, 2)
    assert ("held out" in data.label) == (not tests)
    assert {data.train[index][1] for index in range(sizes[0])} == {0, 1}


def test_an_unlabeled_test_folder_is_none(tmp_path):
    """Kaggle's dogs-vs-cats has test1 with numbers for names."""
    folder = image_data.photographs(tmp_path, "train/{name}.{index}.jpg", "")
    for index in range(3):
        image_data.picture(folder / "test" / f"{index}.jpg")
    assert "a fifth (3) held out for tests" in find_dataset("folder", str(folder)).label


def of(name, make, *broken):
    return pytest.param(name, make, *broken, id=f"{name}-{broken[1][:30]}")


def raw(name, change):
    def broken(folder):
        path = folder / "MNIST" / "raw" / name
        path.write_bytes(change(path.read_bytes()))

    return broken


@pytest.mark.parametrize(("name", "make", "broken", "said"), [
    of("mnist", image_data.mnist, lambda folder: shutil.rmtree(folder / "MNIST"), "train-images-idx3-ubyte"),
    *(
        of("mnist", image_data.mnist, lambda folder, name=name: (folder / "MNIST" / "raw" / name).unlink(), name)
        for name in image_data.MNIST_FILES
    ),
    *(
        of("mnist", image_data.mnist, raw(name, lambda _, content=content: content), "the training set in")
        for name in image_data.MNIST_FILES[:2]
        for content in (b"", b"\0\0", b"\0\0\x0a\3", b"\0\0\x09\1\0\0\0\x1e" + bytes(30), bytes(60))
    ),
    of("mnist", image_data.mnist, raw("train-images-idx3-ubyte", lambda _: b"\0\0\x08\2" + bytes(8)), "the training set in"),
    of("mnist", image_data.mnist, raw("t10k-labels-idx1-ubyte", lambda b: b[:7] + b"\x0b" + b[8:-1]), "11 labels"),
    of("mnist", image_data.mnist, raw("t10k-labels-idx1-ubyte", lambda b: b[:-1] + b"\x0a"), "labels up to 10"),
    of("cifar10", image_data.cifar, lambda f: (f / "cifar-10-batches-py" / "data_batch_3").unlink(), "data_batch_3"),
    of("cifar10", image_data.cifar, lambda f: (f / "cifar-10-batches-py" / "test_batch").write_bytes(b"?"), "is corrupt"),
    of("folder", image_data.photographs, lambda f: (f / "test" / "dog").rename(f / "test" / "bird"), "are not those to test on"),
    of("folder", image_data.photographs, lambda f: shutil.rmtree(f / "train" / "cat"), "are not those to test on"),
    of("folder", image_data.photographs, lambda f: shutil.rmtree(f / "train"), "it has a folder test, but none to train on"),
    of("folder", lambda f: image_data.photographs(f, "{name}/{index}.jpg", ""),
       lambda f: shutil.rmtree(f / "cat"), "fewer than two classes (dog)"),
    of("folder", image_data.photographs, lambda f: [p.unlink() for p in (f / "train" / "cat").iterdir()], "classes cat"),
    of("tiny-imagenet", image_data.tiny_imagenet, lambda f: shutil.rmtree(f / "tiny-imagenet-200" / "train"), "/train"),
    of("tiny-imagenet", image_data.tiny_imagenet,
       lambda f: (f / "tiny-imagenet-200" / "val" / "images" / "val_2.JPEG").unlink(), "val_2.JPEG' is missing"),
    of("tiny-imagenet", image_data.tiny_imagenet,
       lambda f: (f / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn7\n"), "no class of the"),
])  # fmt: skip
def test_what_is_broken_is_named_in_one_line_with_the_layout(tmp_path, name, make, broken, said):
    folder = make(tmp_path)
    broken(folder)
    with pytest.raises(DataError, match=r"holds no .* that can be read") as refused:
        find_dataset(name, str(folder))
    assert said in refused.value.message
    assert "\n" not in str(refused.value)
    assert "FOLDER" in refused.value.hint


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_is_no_image_is_named_by_the_loader(tmp_path, workers):
    folder = image_data.photographs(tmp_path)
    (folder / "train" / "cat" / "cat.3.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    images = find_dataset("folder", str(folder), image_size=32).train
    loader = make_loader(images, 4, workers=workers, pin_memory=False, seed=0, training=True)
    with pytest.raises(DataError) as refused:
        list(loader)
    assert "cat.3.jpg' cannot be decoded as an image" in refused.value.message
    assert "\n" not in refused.value.message
    assert not torch.is_tensor(refused.value)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["cifar10", pytest.param("cifar100", marks=pytest.mark.slow), "tiny-imagenet", "mnist", "folder"])
def test_synthetic_images_have_the_published_sizes_and_say_so(name):
    kind, data = KINDS[name], find_dataset(name)
    assert (len(data.train), len(data.test), data.classes) == (kind.train, kind.test, kind.classes)
    assert not data.real
    assert data.label.startswith("synthetic")
    image, label = data.train[len(data.train) - 1]
    assert image.shape == (3, data.size, data.size)
    assert 0 <= label < kind.classes


def test_synthetic_images_depend_on_the_seed_only():
    first, again, other = (find_dataset("cifar10", seed=seed) for seed in (1, 1, 2))
    torch.testing.assert_close(first.test[3][0], again.test[3][0], rtol=0, atol=0)
    assert not torch.equal(first.test[3][0], other.test[3][0])


def test_digits_are_real_and_the_split_is_fixed():
    pytest.importorskip("sklearn")
    data = find_dataset("digits", train_samples=100)
    assert data.real
    assert data.label == "scikit-learn's 8x8 digits scaled to 32x32"
    assert (len(data.train), len(data.test)) == (100, 360)
    assert data.train[0][0].shape == (3, 32, 32)
    assert find_dataset("digits", image_size=8).test[0][0].shape == (3, 8, 8)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "tiny-imagenet", "folder"])
def test_a_folder_without_the_data_is_named_with_what_was_expected(tmp_path, name):
    with pytest.raises(DataError, match=r"holds no .* that can be read") as refused:
        find_dataset(name, str(tmp_path))
    assert "FOLDER" in refused.value.hint
    with pytest.raises(DataError, match="is not a directory"):
        find_dataset(name, str(tmp_path / "missing"))


def test_a_loader_for_training_has_whole_batches_in_an_order_of_its_seed():
    images = find_dataset("cifar10", train_samples=10).train
    loader, again = (make_loader(images, 4, workers=0, pin_memory=False, seed=3, training=True) for _ in range(2))
    epochs = [[labels.tolist() for _, labels in loader] for _ in range(2)]
    assert [len(labels) for epoch in epochs for labels in epoch] == [4] * 4
    assert epochs == [[labels.tolist() for _, labels in again] for _ in range(2)]
    with pytest.raises(WorkloadError, match="10 training images, fewer than a batch of 11"):
        check_batch(images, 11)
