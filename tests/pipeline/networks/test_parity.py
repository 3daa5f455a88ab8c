"""A trace and a recording of the same step agree to the last byte: two ways of seeing the operators, one table of formulas.

The trace comes from the profiler and is divided by ``attribute``; the recording comes from a dispatch mode, on fake tensors where they
behave as real ones do. They have nothing in common before the formulas.
"""

from collections import defaultdict
from pathlib import Path

import pytest

import rooflines
from rooflines.profiler.calls.recorder import record
from rooflines.profiler.options import PointOptions
from rooflines.profiler.read.reader import read
from rooflines.profiler.tree.tree import tree
from rooflines.profiler.workloads.prepare import prepare
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.count.counts import Known
from rooflines.roofline.count.formulas import count
from rooflines.roofline.dry_run.count import record_network, summarize
from rooflines.roofline.own.own import own
from tests.commands import write_ceilings
from tests.pipeline.networks.recordings import CASES, full_name, options

# Matrix FLOPs, other FLOPs, bytes read, bytes written, calls of one step.
Figures = dict[str, tuple[int, int, int, int, int]]


def summed(found, steps) -> Figures:
    """Figures by operator. Under a mode autograd adds gradients into new tensors, without one in place: the same FLOPs and bytes."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for name, work, calls in found:
        if work.flops or work.bytes:
            total = totals[name.removesuffix("_")]
            for i, value in enumerate((work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written, 1)):
                total[i] += value * calls
    assert not [name for name, total in totals.items() if any(value % steps for value in total)], "every step makes the same calls"
    return {name: tuple(value // steps for value in total) for name, total in totals.items()}


def traced(run) -> Figures:
    trace = read(run.directory / run.facts.trace)
    found = own(count_calls(tree(trace), Known(parameter_elements=run.facts.parameter_elements, stored_calls=run.facts.noted_calls)))
    assert found.gaps == ()
    steps = len(run.facts.steps.traced_ns)
    return summed(((row.signature.name, row.count.work, row.calls) for row in found.rows if row.count.work), steps)


def recorded(name, mode, *, fake) -> Figures:
    if fake:
        found = record_network(full_name(name), options(name, mode))
        assert found.mode is not None, found.recording.reason
        recording = found.recording
    else:
        prepared = prepare(full_name(name), options(name, mode))
        with prepared.flags():
            prepared.step()
            recording = record(prepared.step, None)
    counts = [(call.signature.name, count(call.signature, outputs=call.outputs), number) for call, number in recording.calls.items()]
    assert not {(name, found.reason) for name, found, _ in counts if found.kind == "unknown"}
    return summed(((name, found.work, number) for name, found, number in counts if found.work), 1)


# Steps that differ on fake tensors, so that the recording works on the real ones.
_VIEWS = "dropout works in place on a view, whose gradient autograd computes otherwise for a subclass of tensors"
_STRIDES = "torch's shape rule of native_layer_norm_backward gives other strides than the kernel, and a copy more"
_BIASES = "the two biases of a layer share a gradient, which autograd copies among fake tensors only"
_MASK = "transformers looks whether a mask hides anything, but not in a fake one"
REAL = {
    ("efficientnet_b0", "training"): _VIEWS, ("swin_t", "training"): _STRIDES, ("lstm", "training"): _BIASES,
    ("bert", "inference"): _MASK, ("bert", "training"): _MASK,
}  # fmt: skip
# How much these compute depends on random weights and samples, which differ between two steps.
BY_THEIR_DATA = {"faster_rcnn"}


@pytest.mark.ci
@pytest.mark.parametrize(("name", "mode"), [case for case in CASES if case.values[0] not in BY_THEIR_DATA])
def test_a_trace_and_a_recording_of_a_network_agree(recordings, name, mode):
    assert recorded(name, mode, fake=(name, mode) not in REAL) == traced(recordings.run(name, mode))


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # of what torch calls beta, or deprecated
def test_a_profile_and_a_count_agree_on_what_is_no_dense_tensor_and_no_operator_of_torch(tmp_path):
    name = f"{Path(__file__).with_name('programs.py')}:programs"
    counted = summarize(record_network(name, PointOptions(device="cpu")).recording)
    products = 2 * (10 * 4 * 16 * (8 + 16)), 2 * (5 * 8 * 4), 2 * (9 + 9) * 4, 2 * (3 * 8 * 8) * 3
    assert (counted.matrix_flops, counted.coverage, counted.tensors) == (sum(products), 1.0, "real")
    run = rooflines.profile(
        name, device="cpu", steps=1, warmup=1, formats="json", ceilings=str(write_ceilings(tmp_path)), output=tmp_path / "run"
    )
    found = run.analysis
    assert found.workload.batch_size == 3  # sequences, and not their elements
    for figure in ("matrix_flops", "flops", "bytes"):
        assert getattr(found.totals, figure) == getattr(counted, figure)
    assert {row.name for row in found.coverage.unmodeled} <= {"forward", "rooflines_programs::product"}
