"""A training step on several devices: what each holds and sends in every layout, in closed form."""

import pytest
import torch
from torch import nn

import rooflines
from rooflines.errors import UsageError
from rooflines.reports.page.predict import sentences

WIDE, LAYERS, BATCH, NUMBER = 256, 4, 8, 4
PARAMETERS = 4 * LAYERS * (WIDE * WIDE + WIDE)
H200 = "NVIDIA H200"
SHARE = (NUMBER - 1) / NUMBER


@pytest.fixture(scope="module")
def factory(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.py"
    path.write_text(
        "import torch\nfrom torch import nn\ndef make():\n"
        f"    layers = (nn.Linear({WIDE}, {WIDE}) for _ in range({LAYERS}))\n"
        f"    return nn.Sequential(*layers), torch.rand({BATCH}, {WIDE})\n"
    )
    return f"{path}:make"


@pytest.fixture(scope="module")
def layouts(factory):
    found = rooflines.predict(factory, mode="training", optimizer="adamw", devices=[H200], layouts=["1", str(NUMBER)], like="public")
    return found, {(bound.way, bound.devices): bound for bound in found.devices[0].training}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("way", "cut", "times"), [("dp", (0, 0, 0), 2), ("zero1", (0, 0, 1), 2), ("zero2", (0, 1, 1), 2), ("fsdp", (1, 1, 1), 3)]
)
def test_each_way_cuts_what_it_says_and_sends_for_it(layouts, way, cut, times):
    forecast, each = layouts
    bound, need = each[way, NUMBER], forecast.steps[0].memory
    whole = (PARAMETERS, PARAMETERS, need.optimizer_bytes)
    held = (bound.parameters_bytes, bound.gradients_bytes, bound.optimizer_bytes)
    assert need.parameters_bytes == PARAMETERS
    assert need.optimizer_bytes == pytest.approx(2 * PARAMETERS, rel=0.01)
    assert held == tuple(round(size / NUMBER) if is_cut else size for size, is_cut in zip(whole, cut, strict=True))
    assert bound.sent_bytes == pytest.approx(times * SHARE * PARAMETERS)
    assert bound.lower_bound_s >= bound.communication_s > 0
    assert bound.estimate_s >= bound.lower_bound_s
    assert bound.units_per_s == pytest.approx(NUMBER * BATCH / bound.lower_bound_s)


@pytest.mark.ci
def test_one_device_is_the_step_itself(layouts):
    forecast, each = layouts
    on = forecast.devices[0].steps[0]
    for way in ("dp", "zero1", "zero2", "fsdp"):
        assert each[way, 1].sent_bytes == 0
        assert each[way, 1].lower_bound_s == on.lower_bound_s
        assert each[way, 1].estimate_s == pytest.approx(on.estimate.time_s)
    # Of which the optimizer's part is cut with its state.
    parts = {phase.name: phase.lower_bound_s for phase in on.phases}
    cut = on.lower_bound_s - SHARE * parts["optimizer"]
    assert each["zero1", NUMBER].lower_bound_s == pytest.approx(max(cut, each["zero1", NUMBER].communication_s))
    assert f"1 x H200 SXM5, {min(each, key=lambda key: (key[1], each[key].estimate_s))[0]}" in sentences(forecast)[0]


def test_accumulated_batches_send_whole_gradients_once_and_keep_them(factory):
    texts = [f"{way}={NUMBER}{more}" for way in ("dp", "zero1", "zero2", "fsdp") for more in ("", ",accumulate=3")]
    found = rooflines.predict(factory, mode="training", optimizer="adamw", devices=[H200], layouts=texts, like="public")
    each = {(bound.way, bound.accumulate): bound for bound in found.devices[0].training}
    need, on = found.steps[0].memory, found.devices[0].steps[0]
    optimizer_s = next(phase.lower_bound_s for phase in on.phases if phase.name == "optimizer")
    # Times that all parameters are sent: gradients and gathered parameters.
    for way, sends, part, step in (
        ("dp", 2, 1, 1),
        ("zero1", 1 + 1, 1, 1 / NUMBER),
        ("zero2", 1 + 3, 1 / NUMBER, 1 / NUMBER),
        ("fsdp", 9, 1 / NUMBER, 1 / NUMBER),
    ):
        three = each[way, 3]
        assert three.sent_bytes == pytest.approx(sends * SHARE * PARAMETERS)
        assert (three.gradients_bytes, three.activations_bytes) == (round(part * PARAMETERS), need.activations_bytes)
        computed_s = 3 * (on.lower_bound_s - optimizer_s) + step * optimizer_s
        assert three.lower_bound_s == pytest.approx(max(computed_s, three.communication_s))
        assert three.units_per_s == pytest.approx(3 * NUMBER * BATCH / three.lower_bound_s)
        assert three.estimate_s > each[way, 1].estimate_s
        assert three.memory_bytes >= each[way, 1].memory_bytes


def test_a_layout_that_is_none_is_refused(factory):
    for text in ("tp=8", "fsdp=0", "fsdp", "-1", "fsdp=8,accumulate=0", "fsdp=8,pp=2"):
        with pytest.raises(UsageError, match="is not a layout of a training step"):
            rooflines.predict(factory, mode="training", devices=[H200], layouts=[text])
    with pytest.raises(UsageError, match="requires"):
        rooflines.predict(nn.Linear(2, 2), torch.rand(2, 2), devices=[H200], layouts=["dp=2"])
