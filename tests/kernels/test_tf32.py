"""The TF32 switches: what is set is read back, the older ones can be read, and all are put back exactly. They exist without a GPU."""

import itertools
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.backends import cuda, cudnn

from rooflines.kernels.micro.matmul import float32_matmul
from rooflines.kernels.tf32 import tf32, tf32_state

read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
KEYS = [("generic", "all"), *((backend, one) for backend in ("cuda", "mkldnn") for one in ("all", "matmul", "conv", "rnn"))]
OLDER = {"matmul": torch.get_float32_matmul_precision, "cuda": lambda: cuda.matmul.allow_tf32, "cudnn": lambda: cudnn.allow_tf32}


def everything(value):
    return dict.fromkeys(("matmul", "convolution", "rnn"), value)


def start(matmul="highest", cudnn_on=True, **stored):
    """Torch's state after the older switches were set and then the newer ones, ``cuda_conv="ieee"`` and so on."""
    for key in KEYS:
        write(*key, "none")
    torch.set_float32_matmul_precision(matmul)
    cudnn.allow_tf32 = cudnn_on
    for key, precision in stored.items():
        write(*key.split("_"), precision)


def older():
    """What the older switches read, "raises" where they cannot be."""
    return {name: value_of(getter) for name, getter in OLDER.items()}


def value_of(getter):
    try:
        return getter()
    except RuntimeError:
        return "raises"


def seen():
    """What any program can see of the state, now and after it set the precision of a backend or of all."""
    found = [(*(read(*key) for key in KEYS), *older().values())]
    generic = read("generic", "all")
    for precision in ("ieee", "tf32"):
        write("generic", "all", precision)
        found.append(tuple(read(*key) for key in KEYS))
    write("generic", "all", generic)
    for precision in ("ieee", "tf32"):
        for backend in ("cuda", "mkldnn"):
            write(backend, "all", precision)
        found.append((*(read(*key) for key in KEYS), *older().values()))
    for key in (("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "matmul")):
        write(*key, "ieee")
    return [*found, tuple(older().values())]  # the older switches' own values, "raises" standing for cuDNN's that is on


def some_states():
    none, backend = ("none", "ieee", "tf32"), ("none", "tf32")
    for generic, every, conv, rnn, on in itertools.product(none, none, none, none, (True, False)):
        yield {"cudnn_on": on, "generic_all": generic, "cuda_all": every, "cuda_conv": conv, "cuda_rnn": rnn}
    for matmul, generic, every, product, onednn in itertools.product(
        ("highest", "high", "medium"), ("none", "bf16", "tf32"), backend, none, ("none", "ieee", "tf32", "bf16")
    ):
        for whole in ("none", "bf16"):
            keys = {"generic_all": generic, "cuda_all": every, "cuda_matmul": product, "mkldnn_matmul": onednn, "mkldnn_all": whole}
            yield {"matmul": matmul, **keys}


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """Torch's own start, before and after. Torch's tests, which others import, forbid to set the flags of its backends."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)
    start(cuda_matmul="none", mkldnn_matmul="none")
    yield
    start(cuda_matmul="none", mkldnn_matmul="none")


@pytest.mark.parametrize("allowed", [True, False])
def test_inside_all_are_as_asked_and_afterwards_as_before(allowed):
    before = tf32_state()
    with tf32(allowed):
        assert tf32_state() == everything(allowed)
        with tf32(not allowed):
            assert tf32_state() == everything(not allowed)
        assert tf32_state() == everything(allowed)
    assert tf32_state() == before == {"matmul": False, "convolution": True, "rnn": True}


def test_every_start_is_put_back_and_inside_the_older_switches_can_be_read():
    for at_first in some_states():
        start(**at_first)
        expected = seen()
        for allowed in (True, False):
            start(**at_first)
            with tf32(allowed):
                assert tf32_state() == everything(allowed), at_first
                assert older() == {"matmul": "high" if allowed else "highest", "cuda": allowed, "cudnn": allowed}, at_first
            assert seen() == expected, at_first


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("at_first", [{}, {"matmul": "high"}, {"matmul": "medium"}, {"generic_all": "tf32"}, {"cuda_conv": "ieee"}])
def test_torch_s_own_use_of_the_older_switches_works_inside(at_first, allowed):
    start(**at_first)
    with tf32(allowed):
        with cudnn.flags(enabled=True, allow_tf32=not allowed):
            assert tf32_state()["rnn"] is not allowed
        assert tf32_state() == everything(allowed)
        torch.export.export(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)).eval(), (torch.ones(1, 1, 4, 4),))


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("matmul", ["highest", "high", "medium"])
def test_ceilings_of_float32_leave_the_older_switches_readable(matmul, precision):
    start(matmul=matmul)
    before = older()
    with float32_matmul(precision):
        assert "raises" not in older().values()
        assert tf32_state()["matmul"] is (precision == "tf32")
    assert older() == before


def test_an_error_inside_puts_them_back():
    start(matmul="medium")
    before = older()
    with pytest.raises(ZeroDivisionError), tf32(True):
        1 / 0  # noqa: B018
    assert older() == before


def test_torch_before_the_newer_switches_has_one_for_both_parts_of_cudnn(monkeypatch):
    monkeypatch.delattr(torch._C, "_get_fp32_precision_getter")
    monkeypatch.delattr(torch._C, "_set_fp32_precision_setter")
    torch.set_float32_matmul_precision("medium")
    with tf32(False):
        assert tf32_state() == everything(False)
        assert torch.get_float32_matmul_precision() == "highest"
    assert (torch.get_float32_matmul_precision(), cudnn.allow_tf32) == ("medium", True)
    assert tf32_state() == everything(True)


# Of a process that has set nothing, cuDNN's operators are in a state that no setting leads back to: each case has its own process.
FRESH = """
import os, torch
from torch.backends import cudnn
from rooflines.kernels.tf32 import tf32
from tests.kernels.test_tf32 import KEYS, older, read, write

def seen():
    return [read(*key) for key in KEYS] + [*older().values()]

CASES = {
    "nothing": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "cuDNN off": lambda: setattr(cudnn, "allow_tf32", False),
    "flags": lambda: cudnn.flags(enabled=True).__enter__(),
    **{" ".join((*key, value)): lambda key=key, value=value: write(*key, value) for key in KEYS for value in ("ieee", "tf32")},
}
for name, prepare in CASES.items():
    for allowed in (True, False):
        if (child := os.fork()) == 0:
            prepare()
            before = seen()
            with tf32(allowed):
                inside = seen()
            if "raises" in inside or seen() != before:
                print(name, allowed, before, inside, seen(), sep="\\n  ", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
print("done")
"""


@pytest.mark.ci
def test_a_process_that_has_set_nothing_or_one_switch_is_left_as_it_was():
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
