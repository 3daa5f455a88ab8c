"""Matrix FLOPs of every torchvision network against the figure that torchvision publishes with its weights (``meta["_ops"]``, GMAC).

Published figures are rounded to three decimals, and ours must be the same after rounding: an error of one MMAC fails. torchvision
measured them on one random image of 512 x 512 pixels (16 frames for video, other sizes for detection, see ``DETECTION_SIZES``) that
went through the transforms of the weights; so do we. Weights cannot be downloaded here and change no count, except where a network
decides by its data how much it computes: detectors of two stages, whose number of regions is then found from the published figure.
"""

import pytest
import torch
from torchvision.models import detection, get_model, get_model_builder, get_model_weights, list_models, quantization
from torchvision.models._api import WeightsEnum

import rooflines

ROUNDING_GMAC = 0.0005 + 1e-9
DETECTION_SIZES = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": 320, "keypointrcnn_resnet50_fpn": 1333, "ssd300_vgg16": 300,
    "ssdlite320_mobilenet_v3_large": 320,
}  # fmt: skip

# What the trained weights let through on torchvision's random image: (regions into the box head, into the mask or keypoint head).
# The published figure says so, to the region: see test_detectors_of_two_stages.
REGIONS = {
    ("fasterrcnn_mobilenet_v3_large_320_fpn", "COCO_V1"): (0, 0),  # no proposal scores above rpn_score_thresh=0.05
    ("fasterrcnn_mobilenet_v3_large_fpn", "COCO_V1"): (0, 0),
    ("fasterrcnn_resnet50_fpn", "COCO_V1"): (1000, 0),
    ("fasterrcnn_resnet50_fpn_v2", "COCO_V1"): (1000, 0),
    ("keypointrcnn_resnet50_fpn", "COCO_LEGACY"): (1000, 0),
    ("keypointrcnn_resnet50_fpn", "COCO_V1"): (1000, 1),
    ("maskrcnn_resnet50_fpn", "COCO_V1"): (1000, 0),  # nothing detected: the figure is that of Faster R-CNN, without any mask
    ("maskrcnn_resnet50_fpn_v2", "COCO_V1"): (1000, 100),  # box_detections_per_img
}


# Of the families that share their operators one network, and of the detectors some of each kind; the others repeat the law.
QUICK = {
    "alexnet", "deeplabv3_mobilenet_v3_large", "efficientnet_b0", "inception_v3", "mobilenet_v3_small", "mvit_v1_b", "r3d_18",
    "raft_small", "regnet_x_400mf", "resnet50", "shufflenet_v2_x0_5", "swin_t", "vit_b_32", "quantized_resnet18",
    "quantized_mobilenet_v2", "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn",
    "keypointrcnn_resnet50_fpn",
}  # fmt: skip
QUICK_AS_A_WHOLE = {"maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn"}


def marked(names, quick=QUICK):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def entries(names):
    return [
        pytest.param(name, entry, id=f"{name}.{entry.name}", marks=() if name in QUICK else pytest.mark.slow)
        for name in names
        for entry in get_model_weights(name)
    ]


DETECTORS = list_models(detection)
QUANTIZED = list_models(quantization)
WHOLE = [name for name in list_models() if name not in (*DETECTORS, *QUANTIZED)]
TWO_STAGES = [name for name in DETECTORS if "rcnn" in name]
ONE_STAGE = [name for name in DETECTORS if "rcnn" not in name]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def no_weights(monkeypatch):
    """Builders given weights set their options by them (classes, image size, auxiliary heads), load nothing and initialize nothing."""
    monkeypatch.setattr(WeightsEnum, "get_state_dict", lambda entry, *_, **__: {})
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", lambda module, *_, **__: None)
    for name in ("uniform_", "normal_", "trunc_normal_", "constant_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_"):
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)


def gmac(function, *inputs):
    counted = rooflines.count(function, *inputs)
    assert counted.tensors == "fake"
    return counted.matrix_flops / 2e9


def image_of(name, entry):
    """The image, clip or pair of images that torchvision's script gives this network, as it leaves the transforms of the weights."""
    kind = get_model_builder(name).__module__.split(".")[-2]
    side = DETECTION_SIZES.get(name, 800) if kind == "detection" else 512
    image = torch.zeros({"video": (1, 16, 3, side, side), "detection": (3, side, side)}.get(kind, (1, 3, side, side)))
    transforms = entry.transforms()
    return transforms(image, image) if kind == "optical_flow" else (transforms(image),)


def rounded(entry):
    """The published figure, to be met within its rounding."""
    return pytest.approx(entry.meta["_ops"], rel=0, abs=ROUNDING_GMAC)


def test_no_entry_is_left_out():
    assert {*WHOLE, *QUANTIZED, *ONE_STAGE, *TWO_STAGES} == set(list_models())
    assert {name for name, _ in REGIONS} == set(TWO_STAGES)
    everything = [entry for name in list_models() for entry in get_model_weights(name)]
    assert len(everything) >= 166
    assert all(entry.meta["_ops"] > 0 for entry in everything)


@pytest.mark.ci
@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize(("name", "entry"), entries(WHOLE))
def test_classification_segmentation_video_and_optical_flow(name, entry):
    assert gmac(get_model(name, weights=entry).eval(), *image_of(name, entry)) == rounded(entry)


# --- quantized ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", marked(QUANTIZED))
def test_quantized(name):
    """torchvision gives them the figure of the float network that they were made from; the int8 network itself has the same."""
    for entry in get_model_weights(name):
        assert entry.meta["_ops"] == entry.meta["unquantized"].meta["_ops"]
    small = {"init_weights": False} if name.endswith(("googlenet", "inception_v3")) else {}  # their initialization takes a minute
    network = get_model(name, quantize=True, **small).eval()
    counted = rooflines.count(network, *image_of(name, entry))
    assert counted.matrix_flops / 2e9 == rounded(entry)
    operators = counted.to_dataframe()
    matrix = operators[operators.matrix_flops > 0]
    assert set(matrix.precision) == {"int8"}


# --- detection ---------------------------------------------------------------------------------------------------------------------


def dense_gmac(network, image):
    """Everything that does not depend on what is found in the image: backbone, pyramid and the head that looks at every position.

    Between it and the network's output lie anchors, sorting and suppression, without a product: test_detectors_as_a_whole.
    """
    images, _ = network.transform([image])
    head = network.rpn.head if hasattr(network, "rpn") else network.head
    return gmac(lambda pixels: head(list(network.backbone(pixels).values())), images.tensors)


def box_gmac(network):
    """One region of 7 x 7 through the box head."""
    heads = network.roi_heads
    return gmac(lambda region: heads.box_predictor(heads.box_head(region)), torch.zeros(1, 256, 7, 7))


def detail_gmac(network):
    """One detected region of 14 x 14 through the mask or keypoint head; 0 where there is none."""
    heads = network.roi_heads
    for kind in ("mask", "keypoint"):
        head, predictor = getattr(heads, f"{kind}_head"), getattr(heads, f"{kind}_predictor")
        if head is not None:
            return gmac(lambda region: predictor(head(region)), torch.zeros(1, 256, 14, 14))  # noqa: B023
    return 0.0


@pytest.mark.ci
@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize(("name", "entry"), entries(ONE_STAGE))
def test_detectors_of_one_stage(name, entry):
    assert dense_gmac(get_model(name, weights=entry).eval(), *image_of(name, entry)) == rounded(entry)


@pytest.mark.ci
@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize(("name", "entry"), entries(TWO_STAGES))
def test_detectors_of_two_stages(name, entry):
    """The published figure is the dense part, plus whole regions through the second stage: as many as REGIONS says, no other number.

    How many there are depends on the weights. A figure that were wrong by a part of a layer would give no whole number here.
    """
    network = get_model(name, weights=entry).eval()
    dense, box, detail = dense_gmac(network, *image_of(name, entry)), box_gmac(network), detail_gmac(network)
    boxes, details = REGIONS[name, entry.name]
    assert box > 2 * ROUNDING_GMAC, "the published figure says the number of regions"
    assert boxes <= network.rpn.post_nms_top_n()
    assert details <= network.roi_heads.detections_per_img
    assert dense + boxes * box + details * detail == rounded(entry)


@pytest.mark.ci
@pytest.mark.parametrize("name", marked(DETECTORS, QUICK_AS_A_WHOLE))
def test_detectors_as_a_whole(name):
    """Run with random weights, a detector multiplies as much as its parts do with the regions that it found, and no more."""
    torch.manual_seed(0)
    small = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 64}
    if name in TWO_STAGES:
        small |= {"rpn_post_nms_top_n_test": 20, "rpn_score_thresh": 0.0, "box_score_thresh": 0.0, "box_detections_per_img": 3}
    network = get_model(name, weights=None, weights_backbone=None, **small).eval()
    image = torch.rand(3, 64, 64)
    found = regions_of(network)
    whole = rooflines.count(network, [image])
    assert whole.tensors == "real"
    parts = dense_gmac(network, image)
    if name in TWO_STAGES:
        assert found["box"] > 0
        parts += found["box"] * box_gmac(network) + found["detail"] * detail_gmac(network)
    assert whole.matrix_flops / 2e9 == pytest.approx(parts, rel=1e-12)


def regions_of(network):
    """How many regions the heads were given when the network last ran; filled while it runs."""
    found = {"box": 0, "detail": 0}
    for name, module in network.named_modules():
        kind = {"roi_heads.box_head": "box", "roi_heads.mask_head": "detail", "roi_heads.keypoint_head": "detail"}.get(name)
        if kind:
            module.register_forward_pre_hook(lambda _, inputs, kind=kind: found.__setitem__(kind, len(inputs[0])))
    return found
