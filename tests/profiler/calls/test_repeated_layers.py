"""Layers that were skipped are recorded as those that ran: the same calls, modules and memory as of a recording of all layers."""

from collections import Counter

import pytest
import torch

from rooflines.profiler.calls.fakes import Building, fake_tensors
from rooflines.profiler.calls.memory import record_with_memory
from rooflines.profiler.calls.repeated_layers import RepeatedLayers
from rooflines.profiler.workloads.causal_models import cache_tensors, make_cache

transformers = pytest.importorskip("transformers")

BATCH, LENGTH = 2, 12
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128}
NETWORKS = {
    "gpt2": {"n_embd": 64, "n_layer": 6, "n_head": 4, "vocab_size": 128},
    "llama": {"num_hidden_layers": 7, "num_key_value_heads": 2, **SMALL},
    "gemma3_text": {"num_hidden_layers": 9, "head_dim": 16, "num_key_value_heads": 1, "sliding_window": 8,
                    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 3, **SMALL},
    "deepseek_v3": {"num_hidden_layers": 7, "first_k_dense_replace": 3, "n_routed_experts": 16, "moe_intermediate_size": 32,
                    "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4, "q_lora_rank": 48, "kv_lora_rank": 32, **SMALL},
    "qwen3_next": {"num_hidden_layers": 12, "num_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 2, **SMALL},
}  # fmt: skip


def recorded(network, mode, skipping):
    """A recording of a prompt, the calls that were really made, and the KV cache that it filled."""
    with mode, Building(mode):
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    caches, layers = [], RepeatedLayers(network)

    def step():
        caches.append(make_cache(network.config, "static", LENGTH))
        with torch.inference_mode():
            network(input_ids=tokens, past_key_values=caches[0], use_cache=True, logits_to_keep=1)

    def held():
        return cache_tensors(caches[0])

    if not skipping:
        recording = record_with_memory(step, mode, held=held)
        return recording, len(recording.calls), caches[0]
    with layers.skipped():
        recording = record_with_memory(step, mode, held=held)
    return layers.completed(recording), len(recording.calls), caches[0]


@pytest.mark.ci
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_recording_with_skipped_layers_is_that_of_all_layers(kind):
    mode = fake_tensors()
    with mode, Building(mode):
        network = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **NETWORKS[kind])).eval()
    (whole, made, cache), (completed, fewer, filled) = (recorded(network, mode, skipping) for skipping in (False, True))
    assert fewer < made
    calls = [
        Counter(
            {(one.modules[call.module].path, call.signature, call.outputs, call.phase): number for call, number in one.calls.items()}
        )
        for one in (whole, completed)
    ]
    assert calls[0] == calls[1]
    assert (completed.modules, completed.module_calls) == (whole.modules, whole.module_calls)
    assert completed.memory.at_peak == whole.memory.at_peak
    assert completed.memory.peak_bytes == whole.memory.peak_bytes
    shapes = [[(tensor.shape, tensor.dtype) for tensor in cache_tensors(one)] for one in (cache, filled)]
    assert shapes[0] == shapes[1]
    assert all("forward" not in vars(module) for module in network.modules())
