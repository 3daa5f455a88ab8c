"""No remedy whose precondition fails: each suggestion is tested against the raw events of the trace, read by this file itself."""

import functools
import gzip
import json
import re
from typing import NamedTuple

import pytest

from tests.roofline.real import analysis_of, every_trace
from tests.roofline.test_verdict_laws import SUM, whole_of

COMPILED = r"^triton_(poi|red|per|tem)|CompiledFxGraph|Torch-Compiled Region|^CompiledFunction|Call CompiledFxGraph"
GRAPH = r"^(cuda|hip)GraphLaunch"
TRAINING = r"autograd::engine::evaluate_function|^Optimizer\.(step|zero_grad)#|(?i:backward|optimizer)|\bbwd\b|\([BW]\)|_amp_"
FORWARD = r"(?i:forward)|\bfwd\b|\(F\)|^nn\.Module|^(execute|step)\w*[\[(_]"
AMD = r"\b(AMD|MI\d{3}|gfx\d+)"


class Raw(NamedTuple):
    """What the events of a trace are called, what devices it names, and how much each function of the runtime was called."""

    names: frozenset[str]
    kernels: frozenset[str]
    devices: str
    has_stacks: bool

    def says(self, pattern: str) -> bool:
        return any(re.search(pattern, name) for name in self.names)

    def ran(self, pattern: str) -> bool:
        return any(re.search(pattern, name) for name in self.kernels)


@functools.cache
def raw_of(path) -> Raw:
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    properties = json.dumps(document.get("deviceProperties", [])) if isinstance(document, dict) else ""
    named = [event for event in events if event.get("ph") == "X"]
    return Raw(
        names=frozenset(str(event.get("name")) for event in named),
        kernels=frozenset(str(event["name"]) for event in named if str(event.get("cat", "")).lower() == "kernel"),
        devices=properties,
        has_stacks=any(event.get("cat") == "python_function" for event in named),
    )


def not_compiled(raw: Raw, _) -> bool:
    return not raw.says(COMPILED)


def no_graph(raw: Raw, _) -> bool:
    return not raw.says(GRAPH)


def on_amd(raw: Raw, analysis) -> bool:
    return bool(re.search(AMD, f"{raw.devices} {analysis.environment.device_name}"))


# What a suggestion or its title says, and what the raw events must show for it.
PRECONDITIONS = (
    (r"torch\.compile the model", not_compiled),
    (r"mode=.reduce-overhead. in torch\.compile", lambda raw, _: raw.ran("^triton_") and not raw.says(GRAPH)),
    (r"make_graphed_callables", no_graph),
    (r"larger CUDA graphs|graph_breaks,cudagraphs", lambda raw, _: raw.says(GRAPH)),
    (r"record with with_stack=True", lambda raw, _: not raw.has_stacks),
    (r"without with_stack|without Python stacks", lambda raw, _: raw.has_stacks),
    (r"FlashAttention 3", lambda raw, one: "H100" in one.environment.device_name or "H200" in one.environment.device_name),
    (r"AITER", on_amd),
    (r"TUNABLEOP", lambda raw, _: raw.ran(r"Cijk|rocblas|hipblas")),
    (r"scaled_dot_product_attention", lambda raw, _: raw.says(r"aten::_?softmax") and raw.says(r"aten::(bmm|baddbmm|matmul)")),
    (r"foreach=True|fused=True", lambda raw, _: raw.says(TRAINING)),
    (r"set_to_none", lambda raw, _: raw.says(r"aten::(zero_|fill_)")),
    (r"forward_prefetch", lambda raw, _: raw.says(r"(?i)fsdp|FullySharded")),
    (r"DistributedDataParallel with static_graph", lambda raw, _: raw.says(r"DistributedDataParallel|Reducer")),
    (r"selective checkpointing", lambda raw, _: raw.says(TRAINING)),
    (r"channels-last|channels_last", lambda raw, _: raw.says(r"(?i)conv|batch_norm")),
    (r"cudnn\.benchmark", lambda raw, _: raw.says(r"(?i)conv")),
    (r"max-autotune", lambda raw, _: not raw.ran(r"^triton_tem")),
    (r"tuning script of", lambda raw, _: raw.ran("fused_moe")),
    (r"gradient_as_bucket_view", lambda raw, _: raw.says(r"ddp\.reducer::")),
    (r"broadcast_buffers", lambda raw, _: raw.says(r"DistributedDataParallel")),
    (r"this loader has no workers", lambda raw, _: raw.says(r"#_SingleProcessDataLoaderIter")),
    (r"a larger num_workers and prefetch_factor", lambda raw, _: raw.says(r"#_MultiProcessingDataLoaderIter")),
    (r"non_blocking=True", lambda raw, _: raw.says(r"Memcpy|hipMemcpy|cudaMemcpy")),
    (r"autocast|bf16", lambda raw, one: any(row.precision in ("fp32", "tf32") for row in one.operators)
     or raw.ran(r"(?i)sgemm|s1688|tf32|f32f32|fp32|float")),
    (r"all-reduce|all-to-all|ranks", lambda raw, one: bool(one.timeline and one.timeline.communication_s)),
)  # fmt: skip


@pytest.mark.ci
@every_trace
def test_no_remedy_whose_precondition_fails(path):
    analysis, raw = analysis_of(path), raw_of(path)
    for finding in analysis.findings:
        for words, holds in PRECONDITIONS:
            if re.search(words, finding.suggestion):
                assert holds(raw, analysis), f"{finding.title}: {finding.suggestion}"


@every_trace
def test_no_saving_above_the_time_in_which_the_device_works_or_waits(path):
    """What shortens kernels saves at most the busy time, what shortens waiting at most the idle time, together at most the step."""
    analysis = analysis_of(path)
    timeline, whole_s = analysis.timeline, whole_of(analysis)
    for finding in analysis.findings:
        assert 0 <= finding.most_s <= whole_s * (1 + SUM)
        waits = re.search(r"idle|wait|host|loader|launch|no operator runs", f"{finding.title} {finding.evidence}")
        if timeline is not None and not waits:
            assert finding.most_s <= timeline.busy_s + SUM * whole_s, finding.title
    assert sum(finding.most_s for finding in analysis.findings) <= whole_s * (1 + SUM)
    assert len({finding.title for finding in analysis.findings}) == len(analysis.findings)


@every_trace
def test_no_phase_is_called_forward_without_a_reason(path):
    """Where a trace shows training, the phase forward needs a module, a range, or autograd as its reason."""
    analysis, raw = analysis_of(path), raw_of(path)
    if analysis.environment.device.startswith("cpu") or not raw.says(TRAINING):
        return
    for row in analysis.operators:
        if row.phase == "forward":
            assert row.module or raw.says(FORWARD) or raw.says(r"evaluate_function"), row.name


def test_the_preconditions_are_those_of_suggestions_that_are_made():
    """Most of the words above occur in the advice on the traces of this repository; a word that nothing says would test nothing."""
    from rooflines.roofline.advise import categories, communication, copies, host, matrix, training

    text = ""
    for module in (categories, communication, copies, host, matrix, training):
        with open(module.__file__, encoding="utf-8") as file:
            text += file.read()
    said = [words for words, _ in PRECONDITIONS if re.search(words, text)]
    assert len(said) > len(PRECONDITIONS) / 2
