"""How much of the operator time of real networks has a formula, and whether every call of many more has one.

The first are profiled on this machine, the others counted only. All are those of the papers, but with small images, few tokens, few
layers and few words: their operators are the same.
"""

import pytest
import torch
import torchvision
from torch import nn

import rooflines
from rooflines.profiler.options import PointOptions
from rooflines.roofline.dry_run.count import count_network
from tests.pipeline.networks.recordings import CASES

transformers = pytest.importorskip("transformers")

ENOUGH = 0.99  # of the operator time
# What an operator did that is data: how many boxes it kept, and so how long they took it.
OF_DATA = {"torchvision::nms"}


@pytest.mark.ci
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_nearly_all_operator_time_has_a_formula(recordings, name, mode):
    analysis = recordings.analysis(name, mode)
    rows = [row for row in analysis.coverage.unmodeled if row.name not in OF_DATA]
    without = [f"{row.name} {row.calls} x, {row.time_s * 1e6:.0f} us: {row.reason}" for row in rows]
    counted_s = sum(row.time_s for row in analysis.operators)
    assert counted_s >= ENOUGH * (counted_s + sum(row.time_s for row in rows)), without


# --- operator calls, on fake tensors -----------------------------------------------------------------------------------------------


def small_detector(name):
    sizes = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 64}
    if "rcnn" in name:
        sizes |= {"rpn_post_nms_top_n_test": 10, "rpn_score_thresh": 0.0, "box_score_thresh": 0.0, "box_detections_per_img": 3}
    return torchvision.models.get_model(name, weights=None, weights_backbone=None, **sizes)


def detected(name):
    """Two images and what is in them, with masks and key points for those who want them."""
    box = {"boxes": torch.tensor([[4.0, 4.0, 30.0, 40.0], [10.0, 8.0, 50.0, 60.0]]), "labels": torch.tensor([1, 1])}
    box |= {"masks": torch.ones(2, 64, 64, dtype=torch.uint8), "keypoints": torch.full((2, 17, 3), 20.0)}
    return [torch.rand(3, 64, 64), torch.rand(3, 64, 64)], [box, box]


QUICK_DETECTORS = {"ssdlite320_mobilenet_v3_large"}


def marked(names, quick):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.ci
@pytest.mark.parametrize("name", marked(torchvision.models.list_models(torchvision.models.detection), QUICK_DETECTORS))
def test_every_call_of_a_detector_has_a_formula(name):
    network, (images, targets) = small_detector(name), detected(name)
    with torch.no_grad():
        check_all_counted(rooflines.count(network.eval(), images))
    check_all_counted(rooflines.count(network.train(), images, targets, backward=True))


# One or more of each kind of block; the rest of their families differ in numbers.
IMAGE_NETWORKS = (
    "googlenet", "mnasnet0_5", "mobilenet_v3_small", "regnet_y_400mf", "shufflenet_v2_x0_5", "swin_v2_t", "maxvit_t",
    "lraspp_mobilenet_v3_large", "fcn_resnet50", "mvit_v2_s", "r2plus1d_18", "s3d", "swin3d_t", "raft_small",
    *(f"timm:{name}" for name in (
        "beit_base_patch16_224", "convnext_atto", "coat_lite_tiny", "crossvit_tiny_240", "csatv2", "dla34", "eca_nfnet_l0",
        "eva02_tiny_patch14_224", "fastvit_t8", "focalnet_tiny_srf", "gcvit_xxtiny", "halonet26t", "hrnet_w18_small",
        "lambda_resnet26t", "levit_128s", "mixer_s32_224", "mobilevit_xxs", "repvgg_a0", "resnest14d", "sequencer2d_s",
        "swinv2_cr_tiny_ns_224", "vit_relpos_small_patch16_224", "volo_d1_224", "xcit_nano_12_p8_224",
    )),
)  # fmt: skip


QUICK_IMAGE_NETWORKS = {"raft_small", "r2plus1d_18", "swin3d_t", "timm:mobilevit_xxs"}


@pytest.mark.ci
@pytest.mark.parametrize("mode", [pytest.param("inference", marks=pytest.mark.slow), "training"])
@pytest.mark.parametrize("name", marked(IMAGE_NETWORKS, QUICK_IMAGE_NETWORKS))
def test_every_call_of_an_image_network_has_a_formula(name, mode):
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    check_all_counted(count_network(name, PointOptions(device="cpu", mode=mode, batch_size=2))[1], "fake")


SMALL = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GROUPED = {"num_key_value_heads": 2}
ENCODERS = {
    "bert": {}, "roberta": {}, "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, "mpnet": {},
    "electra": {"embedding_size": 16}, "albert": {"embedding_size": 16}, "convbert": {"embedding_size": 32}, "fnet": {},
    "layoutlm": {}, "modernbert": {}, "longformer": {"attention_window": [4, 4]},
    "deberta-v2": {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["c2p", "p2c"]},
}  # fmt: skip
DECODERS = {
    "gpt2": GPT, "gptj": {**GPT, "rotary_dim": 4}, "gpt_neox": {}, "bloom": {"n_layer": 2, "n_head": 4}, "opt": {"ffn_dim": 64},
    "phi": {}, "falcon": {}, "llama": GROUPED, "mistral": {**GROUPED, "sliding_window": 8}, "qwen2": GROUPED,
    "gemma2": {**GROUPED, "head_dim": 8}, "mixtral": {**GROUPED, "num_local_experts": 4},
    "qwen2_moe": {**GROUPED, "num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32},
    "mamba": {"state_size": 8}, "rwkv": {"attention_hidden_size": 32},
    "recurrent_gemma": {
        "num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 8, "block_types": ["recurrent", "attention"],
    },
}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
BOTH = {"t5": T5, "mt5": T5, "bart": BART, "pegasus": BART}
PATCHES = {**SMALL, "image_size": 32, "patch_size": 8}
SEGFORMER = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 40, 64]}
MOBILEVIT = {"image_size": 64, "hidden_sizes": [24, 32, 40], "neck_hidden_sizes": [8, 8, 16, 24, 32, 40, 80]}


def tokens(count=16):
    return torch.randint(5, 60, (2, count))


def small_transformer(kind, builder, sizes):
    network = builder.from_config(transformers.AutoConfig.for_model(kind, **{**SMALL, **sizes}))
    return network.eval()


def check_both_ways(network, **inputs):
    with torch.no_grad():
        check_all_counted(rooflines.count(network.eval(), **inputs))
    check_all_counted(rooflines.count(network.train(), backward=True, **inputs))
    network.eval()


@pytest.mark.ci
@pytest.mark.parametrize("kind", marked(ENCODERS, {"bert", "convbert", "longformer", "deberta-v2"}))
def test_every_call_of_an_encoder_has_a_formula(kind):
    network = small_transformer(kind, transformers.AutoModel, ENCODERS[kind])
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[0, 10:] = 0
    check_both_ways(network, input_ids=tokens(), **({"attention_mask": mask} if kind != "fnet" else {}))


@pytest.mark.ci
@pytest.mark.parametrize("kind", marked(DECODERS, {"gpt2", "gemma2", "mixtral", "mamba", "recurrent_gemma"}))
def test_every_call_of_a_decoder_has_a_formula_in_prefill_and_for_one_token(kind):
    network = small_transformer(kind, transformers.AutoModelForCausalLM, DECODERS[kind])
    check_both_ways(network, input_ids=tokens(), labels=tokens())
    with torch.no_grad():
        before = network(input_ids=tokens(12), use_cache=True)
        caches = {name: before[name] for name in ("past_key_values", "cache_params", "state") if before.get(name) is not None}
        assert len(caches) == (kind != "recurrent_gemma"), "all but one, which keeps its state in its modules, return it"
        check_all_counted(rooflines.count(network, input_ids=tokens(1), use_cache=True, **caches))


@pytest.mark.ci
@pytest.mark.parametrize("kind", marked(BOTH, {"t5", "bart"}))
def test_every_call_of_an_encoder_and_decoder_has_a_formula_in_prefill_and_for_one_token(kind):
    network = small_transformer(kind, transformers.AutoModelForSeq2SeqLM, {**BOTH[kind], "decoder_start_token_id": 0})
    check_both_ways(network, input_ids=tokens(), labels=tokens(8))
    with torch.no_grad():
        encoded = network.get_encoder()(tokens())
        before = network(encoder_outputs=encoded, decoder_input_ids=tokens(5), use_cache=True)
        cache = {"past_key_values": before.past_key_values, "use_cache": True}
        check_all_counted(rooflines.count(network, encoder_outputs=encoded, decoder_input_ids=tokens(1), **cache))


@pytest.mark.ci
def test_every_call_of_networks_for_images_and_sound_has_a_formula():
    for kind, sizes in (("vit", PATCHES), ("deit", PATCHES), ("dinov2", PATCHES), ("segformer", SEGFORMER), ("mobilevit", MOBILEVIT)):
        network = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **sizes))
        check_both_ways(network, pixel_values=torch.rand(2, 3, sizes.get("image_size", 64), sizes.get("image_size", 64)))
    clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=SMALL, vision_config=PATCHES, projection_dim=16))
    check_both_ways(clip, input_ids=tokens(), pixel_values=torch.rand(2, 3, 32, 32), return_loss=True)
    sound = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embedding_groups": 4}
    wav2vec2 = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**SMALL, **sound, mask_time_prob=0.0))
    check_both_ways(wav2vec2, input_values=torch.rand(2, 1000))
    whisper = transformers.WhisperConfig(**SMALL, **BART, num_mel_bins=8, max_source_positions=20, max_target_positions=32)
    check_both_ways(transformers.WhisperForConditionalGeneration(whisper), input_features=torch.rand(2, 8, 40), labels=tokens(8))


@pytest.mark.ci
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("both", [False, True])
def test_every_call_of_a_recurrent_layer_has_a_formula(kind, both):
    class Packed(nn.Module):
        """Sequences of different lengths."""

        def __init__(self):
            super().__init__()
            self.layer = kind(12, 16, 2, bidirectional=both)

        def forward(self, steps):
            return self.layer(nn.utils.rnn.pack_padded_sequence(steps, torch.tensor([3, 2, 1])))[0].data

    for network in (kind(12, 16, 2, bidirectional=both), Packed()):
        with torch.no_grad():
            check_all_counted(rooflines.count(network.eval(), torch.rand(3, 3, 12)))
        check_all_counted(rooflines.count(network.train(), torch.rand(3, 3, 12), backward=True))


def check_all_counted(counted, tensors=None):
    unknown = sorted({(row.name, row.shapes, row.reason) for row in counted.operators if row.kind != "counted"})
    assert not unknown
    assert counted.coverage == 1
    assert counted.flops > 0
    assert tensors in (None, counted.tensors), counted.note
