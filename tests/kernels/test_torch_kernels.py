"""The kernels that are torch operators: their results, their counts, and the flags they put back."""

import pytest
import torch

from rooflines.kernels.micro import clock, dispatch, matmul, repeats, transfer

CPU = torch.device("cpu")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def test_products_count_and_name_what_they_accumulate_in():
    # Matmul counts.
    assert matmul.flops((3, 4, 5)) == 2 * 3 * 4 * 5
    assert matmul.footprint_bytes((3, 4, 5), "bf16") == 2 * (3 * 5 + 5 * 4 + 3 * 4)
    assert matmul.footprint_bytes((3, 4, 5), "fp8") == (3 * 5 + 5 * 4) + 2 * 3 * 4  # bf16 out
    assert matmul.footprint_bytes((3, 4, 5), "int8") == (3 * 5 + 5 * 4) + 4 * 3 * 4  # int32 out
    # Matmul names what it accumulates in.
    assert {precision: matmul.accumulate(precision) for precision in matmul.DTYPES} == {
        "fp64": "fp64", "fp32": "fp32", "tf32": "fp32", "bf16": "fp32", "fp16": "fp32", "fp8": "fp32", "int8": "int32",
    }  # fmt: skip


def operands(monkeypatch, shape, precision, **options):
    """The product and what it was made of, as float64."""
    kept = []
    name = matmul.operator(precision).removeprefix("torch.")
    original = getattr(torch, name)
    monkeypatch.setattr(torch, name, lambda *given, **more: kept.append(given) or original(*given, **more))
    product = matmul.multiplication(shape, precision, CPU, **options)()
    return product.double(), kept[0][0].double() @ kept[0][1].double()


@pytest.mark.parametrize("scaling", ["tensor", "row", "tensor, slow accumulation"])
def test_fp8_product_is_right(monkeypatch, scaling):
    found, expected = operands(monkeypatch, (32, 48, 64), "fp8", scaling=scaling)
    assert found.shape == (32, 48)
    # products of e4m3 numbers are exact in fp32; the result is rounded to bf16, which has 8 bits
    assert torch.allclose(found, expected, rtol=2**-7, atol=2**-8)


@pytest.mark.parametrize(("precision", "rtol"), [("fp32", 1e-5), ("fp64", 1e-12), ("bf16", 2**-7), ("int8", 0.0)])
def test_products_are_right(monkeypatch, precision, rtol):
    found, expected = operands(monkeypatch, (32, 48, 64), precision)
    assert found.shape == (32, 48)
    assert torch.allclose(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("transposed", ["", "left", "right"])
def test_an_operand_is_stored_transposed(monkeypatch, transposed):
    found, expected = operands(monkeypatch, (3, 5, 7), "fp64", transposed=transposed)
    assert found.shape == (3, 5)
    assert torch.allclose(found, expected)
    kept = []
    monkeypatch.setattr(torch, "mm", lambda left, right, out: kept.extend([left, right]))
    matmul.multiplication((3, 5, 7), "fp64", CPU, transposed=transposed)()
    assert [one.is_contiguous() for one in kept] == [transposed != "left", transposed != "right"]


def test_a_product_in_words():
    words = [matmul.words((3, 5, 7), side) for side in ("", "left", "right")]
    assert words == ["[3, 7] @ [7, 5]", "[7, 3].T @ [7, 5]", "[3, 7] @ [5, 7].T"]
    assert [one for one in matmul.DTYPES if not matmul.has_free_layout(one)] == ["fp8", "int8"]


def test_transfers_move_what_they_count_and_reads_the_same_memory():
    # Transfers move what they count.
    operands = transfer.operands(4096, CPU)
    results = {"read": None, "write": 1, "copy": 1, "triad": 1 + 3 * 2}
    for (access, result), arrays in zip(results.items(), (1, 1, 2, 3), strict=True):
        operands[2].zero_()
        call, size = transfer.streaming(access, *operands)
        found = call()
        assert size == arrays * 4096
        assert operands[2].eq(result).all() if result else found.item() == 1024
    # Repeated read reads the same memory.
    source = torch.ones(1000)
    call, size = transfer.repeated_read(source, 4)
    assert size == 4 * 4000
    assert call().tolist() == [1000.0] * 4
    # Timed calls.
    calls = []
    timing = clock.timed_on_device(CPU, lambda: calls.append(1), 7)
    assert len(calls) == 7
    assert timing.seconds > 0
    assert 0 <= timing.busy <= 1


@pytest.mark.parametrize("make", [dispatch.operator, dispatch.ufunc, dispatch.compiled_function])
def test_dispatch_is_a_time(make):
    timing = make()(2000)
    assert timing.seconds >= 0
    assert 0 < timing.busy <= 1.01


def test_a_disturbed_empty_loop_makes_no_operator_faster(monkeypatch):
    # GIVEN an empty loop of 1 ms, the second time of 5 ms, beside an operator's of 10 ms
    loops = iter([1e-3, 10e-3, 5e-3, 10e-3])
    monkeypatch.setattr(dispatch, "_loop", lambda call, calls: repeats.Timing(next(loops)))
    run = dispatch._beyond(lambda: None, lambda: None)
    assert [run(1000).seconds, run(1000).seconds] == pytest.approx([9e-3, 9e-3])


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_traced_launches_are_those_of_the_two_operators():
    trace = dispatch.traced_launches(CPU, 3)
    names = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    assert (names.count("aten::add_"), names.count("aten::zero_")) == (3, 3)
    assert dispatch.shortest_kernel_s(trace) is None  # on a CPU


@pytest.mark.gpu
@NEEDS_GPU
def test_traced_launches_on_the_gpu():
    found = dispatch.shortest_kernel_s(dispatch.traced_launches(torch.device("cuda", 0), 20))
    assert found is not None
    assert 0 < found < 1e-4


@pytest.mark.gpu
@NEEDS_GPU
def test_launch_graph_launches_every_kernel():
    replay = dispatch.launch_graph(torch.device("cuda", 0), 10)
    assert clock.timed_on_device(torch.device("cuda", 0), replay, 3).seconds > 0


@pytest.mark.gpu
@NEEDS_GPU
def test_repeated_read_on_the_gpu():
    call, _ = transfer.repeated_read(torch.ones(1 << 20, device="cuda"), 64)
    assert call().tolist() == [float(1 << 20)] * 64


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("precision", list(matmul.DTYPES))
def test_products_on_the_gpu_are_right(precision):
    from rooflines.device_specs.measure_gpu import product_precisions

    device = torch.device("cuda", 0)
    if precision not in product_precisions(torch.cuda.get_device_capability(device) if torch.version.cuda else None):
        pytest.skip("not on this device")
    small = matmul.multiplication((256, 512, 128), precision, device)().double().cpu()
    assert small.shape == (256, 512)
    assert small.abs().sum() > 0
    # the sums of k products of numbers in [-0.5, 0.5) or of int8: their mean square is k / 144, or k times that of int8 squared
    square = 128 / 144 if precision != "int8" else 128 * ((256**2 - 1) / 12 + 0.25) ** 2
    assert small.square().mean().item() == pytest.approx(square, rel=0.05)


def test_parts_of_a_run_are_long_enough():
    # The fastest part of a run is long enough to be timed.
    # groups of two calls take 0.09 ms on average, so a part of 0.2 ms has three: 0.25 ms, or 0.3 ms without the faster one
    ends = [0.0, 1e-4, 2e-4, 2.5e-4, 3.5e-4, 4.5e-4]
    assert clock.fastest_pace(ends, [2] * 5) == pytest.approx(2.5e-4 / 6)
    # a single long call is its own part, and a run that is shorter than a part is one part
    assert clock.fastest_pace([0.0, 0.004, 0.007], [1, 1]) == pytest.approx(0.003)
    assert clock.fastest_pace([0.0, 1e-5, 3e-5], [4, 2]) == pytest.approx(3e-5 / 6)
    # A cpu is timed as a whole.
    assert clock.timed_in_parts(CPU, lambda: None, 10).peak_s is None
