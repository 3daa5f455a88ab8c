"""What stands for several arguments, and the tensors in arguments of any kind."""

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from transformers.modeling_outputs import BaseModelOutput

from rooflines.profiler.options import PointOptions
from rooflines.profiler.workloads.inputs import as_arguments, batch_size_of, with_tensors
from rooflines.profiler.workloads.prepare import from_module

Pair = namedtuple("Pair", "image size")


@dataclass
class Sample:
    image: torch.Tensor
    label: str


def kind(value):
    """The id of a test, the same in every process: the tensors are random."""
    return type(value).__name__


X = torch.rand(4, 3)
PACKED = pack_padded_sequence(torch.rand(5, 3, 8), [5, 3, 2])


@pytest.mark.parametrize("value", [
    X, [X, X], Pair(X, 7), PACKED, Sample(X, "a"), BaseModelOutput(last_hidden_state=X), OrderedDict(x=X), torch.Size((2,)),
], ids=kind)  # fmt: skip
def test_one_argument_is_one_argument(value):
    (argument,), keywords = as_arguments(value)
    assert argument is value
    assert keywords == {}


def test_tuples_and_dicts_are_arguments():
    assert as_arguments((X, 1)) == ((X, 1), {})
    assert as_arguments({"x": X}) == as_arguments(UserDict(x=X)) == ((), {"x": X})


def test_the_batch_is_the_first_dimension_or_the_number_of_sequences():
    assert [batch_size_of(value) for value in (X, (Sample(X, "a"), 1), PACKED, (PACKED,), "text")] == [4, 4, 3, 3, None]


@pytest.mark.parametrize("value", [Pair(X, 7), Sample(X, "a"), BaseModelOutput(last_hidden_state=X), {"x": [X]}], ids=kind)
def test_tensors_are_replaced_in_a_copy(value):
    seen = []
    copied = with_tensors(lambda tensor: seen.append(tensor) or tensor.double(), value)
    assert type(copied) is type(value)
    assert len(seen) == 1
    assert str(copied) == str(with_tensors(lambda _: X.double(), value)) != str(value)


def test_a_packed_sequence_gets_the_precision_and_keeps_its_lengths():
    network = nn.LSTM(8, 16)
    seen = []
    network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    from_module(network, PACKED, PointOptions(device="cpu", precision="bf16")).step()
    ((packed,),) = seen
    assert packed.data.dtype is torch.bfloat16
    assert packed.batch_sizes.tolist() == PACKED.batch_sizes.tolist()
