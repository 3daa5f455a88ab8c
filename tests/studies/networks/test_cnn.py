"""The network's layers, initial parameters and declared work, by arithmetic and beside what ``rooflines.count`` finds for torch's."""

from collections import Counter
from math import prod

import numpy as np
import pytest
import torch
from torch import nn

import rooflines
from rooflines_studies.networks import cnn
from rooflines_studies.networks.base import fastest
from rooflines_studies.networks.cnn_numba import NumbaCpu
from rooflines_studies.networks.cnn_numba import work as numba_work
from rooflines_studies.networks.cnn_torch import TorchCnn


@pytest.mark.parametrize("count", [1, 5])
def test_shapes_are_those_of_torchs_layers(count):
    values, found = torch.zeros(count, *cnn.IMAGE), {"image": (count, *cnn.IMAGE)}
    for name, layer in TorchCnn().module.named_children():
        values = layer(values)
        found[name] = tuple(values.shape)
    assert {name: found[name] for name in cnn.OUTPUTS} == {name: (count, *shape) for name, shape in cnn.OUTPUTS.items()}


def test_initial_parameters_are_those_of_he():
    parameters = cnn.initial_parameters(3)
    assert {name: value.shape for name, value in parameters.items()} == cnn.PARAMETERS
    assert {value.dtype for value in parameters.values()} == {np.dtype(np.float32)}
    assert all(not parameters[name].any() for name in parameters if name.endswith(".bias"))
    # 51200 weights of 400 inputs: variance 2 / 400, known to sqrt(2 / 51200) = 0.6 %
    assert parameters["dense1.weight"].var() == pytest.approx(2 / 400, rel=0.03)
    assert parameters["conv2.weight"].var() == pytest.approx(2 / 72, rel=0.2)
    again, other = cnn.initial_parameters(3), cnn.initial_parameters(4)
    assert all((parameters[name] == again[name]).all() for name in parameters)
    assert not (parameters["dense1.weight"] == other["dense1.weight"]).any()


def test_work_of_the_convolutions_by_hand():
    work = {(part.name, part.layer): part for part in cnn.work(512)}
    # [512, 8, 26, 26] outputs of 9 taps, one bias each
    first = work["convolution", "conv1"]
    assert first.matrix_flops == 512 * 8 * 26 * 26 * 2 * 9
    assert first.other_flops == 512 * 8 * 26 * 26
    assert first.bytes_read == 4 * (512 * 28 * 28 + 8 * 9 + 8)
    assert first.bytes_written == 4 * 512 * 8 * 26 * 26
    # [512, 16, 11, 11] outputs of 72: the gradients of weights and of inputs cost as much each, the image's is not asked for
    second = work["convolution gradients", "conv2"]
    assert second.matrix_flops == 2 * 512 * 16 * 11 * 11 * 2 * 72
    assert work["convolution gradients", "conv1"].matrix_flops == first.matrix_flops
    assert work["linear", "dense1"].matrix_flops == 2 * 512 * 400 * 128
    count = sum(prod(shape) for shape in cnn.PARAMETERS.values())
    assert count == 80 + 1168 + 51328 + 1290
    assert (work["sgd with momentum", ""].flops, work["sgd with momentum", ""].bytes) == (4 * count, 20 * count)


@pytest.mark.parametrize("count", [3, 64])
def test_work_is_what_rooflines_counts_for_torchs_step(count):
    network = TorchCnn()
    optimizer = torch.optim.SGD(network.module.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.zeros(count, *cnn.IMAGE), torch.zeros(count, dtype=torch.int64)

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(network.module(x), y).backward()
        optimizer.step()

    step()  # makes the momentum
    rows = rooflines.count(step).to_dataframe()
    computing = rows[(rows.flops > 0) & (rows.phase != "optimizer")]
    columns = ["phase", "calls", "precision", "flops", "matrix_flops", "bytes_read", "bytes_written"]
    work = cnn.work(count)
    ours = Counter(tuple(getattr(part, column) for column in columns) for part in work if part.phase != "optimizer")
    assert ours == Counter(computing[columns].itertuples(index=False, name=None))
    # torch's optimizer makes three passes on a CPU, of which each reads and writes; the FLOPs are the same
    assert work[-1].flops == rows[rows.phase == "optimizer"].flops.sum()
    assert work[-1].bytes < rows[rows.phase == "optimizer"].bytes.sum()


@pytest.mark.parametrize("threads", [1, 2, 64])
@pytest.mark.parametrize("count", [1, 512])
def test_fused_operators_do_the_same_work_with_less_traffic(count, threads):
    whole, parts = cnn.work(count), numba_work(count, threads)
    for figure in ("matrix_flops", "other_flops"):
        assert sum(getattr(part, figure) for part in parts) == sum(getattr(part, figure) for part in whole)
    # but for the update, whose threads have gradients of their own
    assert sum(part.bytes for part in parts[:-1]) < sum(part.bytes for part in whole[:-1])
    assert all(part.executed_flops is None or part.executed_flops <= part.flops for part in parts[:-1])


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_the_update_declares_the_sums_of_all_threads(threads):
    network = NumbaCpu(threads=threads)
    update, plain = numba_work(1, threads)[-1], cnn.work(1)[-1]
    weights, sums = network._weights, network._sums
    held, total = weights.parameters.nbytes, sums.total.nbytes
    # padded to whole vectors, but near to the 53,866 parameters
    assert held == total == sums.others.nbytes // threads == pytest.approx(4 * 53_866, rel=0.02)
    copies = sum(array.nbytes for array in weights[2:]) - 4 * 6 * 128  # of the sixteen rows of dense2's copy ten are written
    assert update.bytes_read == sums.others.nbytes + 2 * held
    assert update.bytes_written == total + 2 * held + copies
    assert update.flops == plain.flops
    assert update.executed_flops == plain.flops + (threads - 1) * total // 4


def test_flops_of_fused_and_fastest_launches():
    # Executed flops are those of the outputs that matter.
    by_layer = {(part.layer, part.phase): part for part in numba_work(2, 1)}
    # of 11 x 11 outputs 10 x 10 lie in a window: 2 * 72 + 1 FLOPs each, and 1 + 4 for each of 5 x 5 maxima
    assert by_layer["conv2", "forward"].executed_flops == 2 * 16 * (100 * 145 + 25 * 5)
    # those read 12 x 12 of 13 x 13 maxima, of 24 x 24 outputs of conv1
    assert by_layer["conv1", "forward"].executed_flops == 2 * 8 * (24 * 24 * 19 + 144 * 5)
    # 25 gradients a channel, each to 72 weights, 72 inputs and the bias
    assert by_layer["conv2", "backward"].executed_flops == 2 * 16 * 25 * (4 * 72 + 1)
    # A fused operator adds up the FLOPs of its parts and takes its own bytes.
    work = {f"{part.name} {part.layer}": part for part in cnn.work(2)}
    parts = [work[name] for name in ("linear dense1", "relu dense1")]
    fused = by_layer["dense1", "forward"]
    assert (fused.name, fused.flops, fused.matrix_flops) == ("linear, relu", sum(part.flops for part in parts), parts[0].matrix_flops)
    assert (fused.bytes_written, fused.executed_flops) == (parts[1].bytes_written, None)
    assert fused.bytes < sum(part.bytes for part in parts)
    # Fastest takes the least of each column.
    work = cnn.work(1)[:2]
    times = fastest(work, [[3.0, 1.0], [2.0, 4.0]])
    assert [time.seconds for time in times] == [2.0, 1.0]
    assert [time.rounds for time in times] == [2, 2]
