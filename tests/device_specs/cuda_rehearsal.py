"""``measure_cuda`` from end to end on a machine without a GPU: what it prints, as JSON, is what ``test_measure_cuda`` looks at.

The kernels run in Numba's CUDA simulator (``NUMBA_ENABLE_CUDASIM=1``) and torch's operators on the CPU; what torch says about a GPU
comes from the stand-in below. The rates say nothing. What is rehearsed is all the rest: that every figure is asked for, fits into
memory, runs, and becomes a ceiling with its fields.
"""

import contextlib
import json
import sys
from types import SimpleNamespace

import msgspec
import torch
from numba import cuda

from rooflines.device_specs import detect, measure_gpu, measure_torch
from rooflines.device_specs.history import best_of
from rooflines.device_specs.measure_torch import gemm
from rooflines.device_specs.plan import Plan
from rooflines.kernels.micro import cuda_stream, cuda_vectors, dispatch

FACTS = detect.Gpu(name="stand-in", index=0, compute_capability=(9, 0), multiprocessors=2, memory_bytes=1 << 26, l2_bytes=4096)
PROPERTIES = SimpleNamespace(uuid="none", multi_processor_count=2, max_threads_per_multi_processor=8)


def rehearse(full, sustained_s, kernels):
    device = torch.device("cpu")
    torch.cuda.device = lambda _: contextlib.nullcontext()
    torch.cuda.get_device_properties = lambda _: PROPERTIES
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
    torch.cuda.device_count = lambda: 1
    detect.gpu = lambda _: FACTS
    for module in (measure_gpu, measure_torch):
        module.free_bytes = lambda _: 1 << 24
    cuda_vectors.THREADS = cuda_stream.THREADS = cuda_stream.SHARED_THREADS = 4
    cuda_stream.PATTERNS = tuple(one._replace(threads=one.threads // 256 * 4) for one in cuda_stream.PATTERNS)
    cuda_stream.MORE_PATTERNS = tuple(one._replace(threads=one.threads // 256 * 4) for one in cuda_stream.MORE_PATTERNS[-2:])
    cuda_stream.SHARED_VECTORS = 2 * cuda_stream.SHARED_THREADS
    cuda_stream.array_bytes = lambda *_: 4096
    measure_gpu._FMA_ITERATIONS = measure_gpu._SHARED_PASSES = 1
    measure_gpu._L2_BYTES = 4096
    measure_gpu._array = lambda tensor: cuda.to_device(tensor.numpy())
    measure_gpu.unusable = lambda _: "" if kernels else "no NVVM"
    measure_torch._LARGEST_COPY = 4096
    measure_gpu._CUBES = ((32, 32, 32), (64, 64, 64))
    measure_gpu._MORE_SHAPES = ((32, 64, 32),)
    measure_gpu.transposed_shapes = lambda full, _: (((64, 32, 64), "right"), *([((64, 32, 64), "left")] if full else []))
    measure_gpu.gemm = lambda plan, device, precision, shapes, _, *rest, **more: gemm(
        plan, device, precision, shapes, 32, *rest, **more
    )
    dispatch.launch_graph = lambda device, launches: lambda: None
    dispatch.smallest_kernel = lambda device: torch.ones(1)
    ones = torch.ones
    torch.ones = lambda *sizes, pin_memory=False, **options: ones(*sizes, **options)

    said = []
    plan = Plan(0.0, said.append)  # no time at all: two rounds of samples of one call each
    order = []
    visit, warm_up = plan.visit, plan._warm_up
    plan.visit = lambda figure, way: (order.append(f"visit {figure.name}"), visit(figure, way))[1]
    plan._warm_up = lambda way: (order.append("prepare"), warm_up(way))[1]
    measure_gpu._spin = lambda _: lambda: order.append("spin")
    launches = [{"cat": "kernel", "dur": duration} for duration in ((3e-6, 1e-6) if kernels else (1e12,))]
    dispatch.traced_launches = lambda *_: (order.append("trace"), {"traceEvents": [{"cat": "gpu_memset", "dur": 1e-9}, *launches]})[1]
    measure_gpu.measure_cuda(plan, device, full=full, sustained_s=sustained_s)
    ceilings = best_of([plan.session(full=full, seconds=0.0)], sustained_s)
    return {"ceilings": msgspec.to_builtins(ceilings), "said": said, "order": order}


if __name__ == "__main__":
    full, sustained, kernels = (word == "yes" for word in sys.argv[1:])
    print(json.dumps(rehearse(full, 0.02 if sustained else None, kernels)))
