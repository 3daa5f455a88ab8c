"""The largest batch and context that fit, and the refusal before anything is allocated."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.errors import OutOfMemoryError
from rooflines.profiler.options import PointOptions
from rooflines.profiler.records import GenerationSizes, Workload
from rooflines.roofline.dry_run.memory_fit import MemoryGrowth, check_memory
from rooflines.roofline.dry_run.phases import GenerationCount


def generation(batch, **facts):
    return GenerationCount(workload=Workload(name="m", mode="generate", batch_size=batch), phases=(), parameters=5, **facts)


def test_the_largest_batch_and_context_use_the_memory_up():
    # of 4 sequences: 10 parameters, 8 of cache and 4 of activations
    counted = generation(4, parameter_bytes=10, activation_bytes=4, kv_bytes=8, kv_bytes_per_token=1)
    for memory in range(60):
        batch = MemoryGrowth.of(counted).largest_batch(memory)
        assert batch == 0 or 10 + batch * (8 + 4) / 4 <= memory
        assert 10 + (batch + 1) * (8 + 4) / 4 > memory
        context = counted.largest_context(memory - 10 - 4, 4)
        assert context == 0 or 10 + 4 + context * 4 <= memory
        assert 10 + 4 + (context + 1) * 4 > memory


@given(
    per_token=st.integers(1, 40), windows=st.dictionaries(st.integers(1, 30), st.integers(1, 20), max_size=3),
    free=st.integers(-5, 4000), requests=st.integers(1, 3), longest=st.one_of(st.none(), st.integers(1, 200)),
)  # fmt: skip
def test_with_windows_the_largest_context_is_that_of_the_layers(per_token, windows, free, requests, longest):
    """A layer holds each token, a layer with a window no more than that."""
    sizes = GenerationSizes(
        parameters=1, parameter_bytes=1, kv_bytes_per_token=per_token + sum(windows.values()),
        kv_windows=tuple(sorted(windows.items())), longest_context=longest,
    )  # fmt: skip

    def held(context):
        return per_token * context + sum(each * min(window, context) for window, each in windows.items())

    context = sizes.largest_context(free, requests)
    assert sizes.cache_bytes(context) == held(context)
    assert context == 0 or requests * held(context) <= free
    assert context == longest or requests * held(context + 1) > free


def test_windows_alone_are_full_at_last():
    sizes = GenerationSizes(parameters=1, parameter_bytes=1, kv_bytes_per_token=5, kv_windows=((8, 5),))
    assert sizes.largest_context(39, 1) == 7
    assert sizes.largest_context(40, 1) is None
    assert msgspec.structs.replace(sizes, longest_context=99).largest_context(40, 1) == 99


def test_a_generation_that_does_not_fit_is_refused_with_what_fits():
    def refusal(free, batch=4):
        each = {"kv_bytes": batch * 20, "activation_bytes": batch * 10}
        counted = generation(batch, parameter_bytes=100, kv_bytes_per_token=1, **each)
        asked = PointOptions(mode="generate", batch_size=batch, prompt_length=15, new_tokens=5)
        try:
            check_memory("m", counted, free, f"{free} B free", asked)
        except OutOfMemoryError as error:
            return str(error)
        return ""

    assert refusal(100 + 4 * 30) == ""
    assert "100 B of parameters, 80.0 B of KV cache and 40.0 B of activations; 219 B free" in refusal(219)
    assert "The largest batch that fits: batch_size=3." in refusal(219)
    assert "The longest prompt that fits: prompt_length=14." in refusal(129, batch=1)
    assert "precision='bf16'" in refusal(90, batch=1)


@pytest.mark.ci
def test_a_network_larger_than_this_machine_is_refused_before_it_is_built(tmp_path):
    rooflines = pytest.importorskip("rooflines")
    transformers = pytest.importorskip("transformers")
    transformers.LlamaConfig(
        hidden_size=1 << 15, intermediate_size=1 << 18, num_hidden_layers=8, num_attention_heads=32
    ).save_pretrained(tmp_path)
    with pytest.raises(OutOfMemoryError, match=r"not enough memory for hf:.* GiB of parameters"):
        rooflines.profile(f"hf:{tmp_path}", mode="generate", device="cpu", output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
