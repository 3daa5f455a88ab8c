"""Kernels read from files of inductor's cache, which inductor wrote (``tests/data/inductor``)."""

from pathlib import Path

import pytest

from rooflines.errors import UsageError
from rooflines.profiler.compiled.inductor_cache import read_cache, read_fragment, read_triton
from rooflines.profiler.compiled.records import Access
from rooflines.profiler.read.signature import TensorArg

DATA = Path(__file__).parents[2] / "data" / "inductor"
BF16 = "bfloat16"


@pytest.fixture
def cache(tmp_path):
    def made(*names):
        for name in names:
            folder = tmp_path / name[:2]
            folder.mkdir(exist_ok=True)
            (folder / f"c{name}.py").write_text((DATA / f"{name}.txt").read_text())
        return read_cache(tmp_path)

    return made


def test_what_a_generated_kernel_says(cache):
    # Kernels are found in folders by name.
    found = cache("rope", "ln", "cpp")
    assert sorted(found) == [
        "cpp_fused_gelu_0", "cpp_fused_native_layer_norm_1", "triton_per_fused_native_layer_norm_0",
        "triton_poi_fused_add_cat_mul_slice_sub_0",
    ]  # fmt: skip
    assert all(len(kernels) == 1 for kernels in found.values())
    # Loads and stores have the elements that their indices reach.
    (norm,) = cache("ln")["triton_per_fused_native_layer_norm_0"]
    assert norm.source.parameters == ("in_ptr0", "in_ptr1", "in_ptr2", "out_ptr2", "xnumel", "r0_numel")
    buffers = {"in_ptr0": (0, 11520), "in_ptr1": (1, 96), "in_ptr2": (2, 96), "out_ptr2": (3, 11520)}
    reads, writes = norm.source.accessed({"xnumel": 120, "r0_numel": 96}, buffers)
    assert reads == [Access(0, 11520, 0, 11519), Access(1, 96, 0, 95), Access(2, 96, 0, 95)]
    assert writes == [Access(3, 11520, 0, 11519)]
    # A loaded value in an index reaches one element a point.
    (kernel,) = cache("embed")["triton_poi_fused_embedding_mul_0"]
    reads, _ = kernel.source.accessed({"xnumel": 5760}, {"in_ptr0": (0, 60), "in_ptr1": (1, 96000), "out_ptr0": (2, 5760)})
    assert reads == [Access(0, 60, 0, 59), Access(1, 5760, 0, 95999, anywhere=True)]
    # The comment above a kernel has its operators with shapes.
    (kernel,) = cache("embed")["triton_poi_fused_embedding_mul_0"]
    assert [(call.name, results) for call, results in kernel.fragment.calls] == [
        ("aten::embedding", (TensorArg((60, 96), BF16, (96, 1)),)),
        ("aten::mul", (TensorArg((60, 96), BF16, (96, 1)),)),
    ]
    assert kernel.fragment.calls[1][0].args == (TensorArg((60, 96), BF16, (96, 1)), 2)
    # Older files have no shapes.
    line = "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%x, 2), kwargs = {})"
    assert read_fragment([line]) is None or read_fragment([line]).calls is None
    assert read_fragment(["Original ATen: [aten.mul]"]) is None


def test_tensors_of_a_kernel_in_cpp_and_kernels_in_two_files(cache, tmp_path):
    # A kernel in cpp has the tensors of its call.
    found = cache("cpp")
    (gelu,), (norm,) = found["cpp_fused_gelu_0"], found["cpp_fused_native_layer_norm_1"]
    hidden, column = TensorArg((60, 384), "float32", (384, 1)), TensorArg((60, 1), "float32", (1, 60))
    assert gelu.fragment.inputs == gelu.fragment.results == (hidden,)  # what the product before it wrote
    rows, weight = TensorArg((60, 96), "float32", (96, 1)), TensorArg((96,), "float32", (1,))
    assert norm.fragment.inputs == (rows, weight, weight)  # the statistics are new
    assert norm.fragment.results == (column, rows, column)
    # The file of one kernel adds nothing to that of its graph.
    graph = (DATA / "ln.txt").read_text()
    code = graph.split("'''")[1]
    (tmp_path / "kernel.py").write_text(code)
    (alone,) = read_cache(tmp_path)["triton_per_fused_native_layer_norm_0"]
    assert alone.fragment is None
    (tmp_path / "graph.py").write_text(graph)
    (whole,) = read_cache(tmp_path)["triton_per_fused_native_layer_norm_0"]
    assert whole.fragment is not None
    assert whole.source == alone.source


def test_what_is_not_read(tmp_path):
    # No file is executed and files that are not python are left out.
    (tmp_path / "a.py").write_text("async_compile.triton(\nraise SystemExit")
    (tmp_path / "b.py").write_text("import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n# async_compile.")
    (tmp_path / "c.py").write_bytes(b"\xff\x00async_compile.")
    (tmp_path / "d.py").write_text("async_compile = 1\nx = async_compile.triton('x', '''not python (''')")
    assert read_cache(tmp_path) == {}
    assert not list(tmp_path.glob("*.ran"))
    # A directory that does not exist is refused.
    with pytest.raises(UsageError, match="no such directory"):
        read_cache(tmp_path / "none")
    # Block pointers are not read.
    code = "@triton.jit\ndef triton_poi_fused_a_0(in_ptr0, xnumel):\n    a = tl.load(tl.make_block_ptr(in_ptr0, shape=[4]))"
    assert read_triton(code) is None
