"""timm's training loop, from the package's own parts."""

import pytest

from tests.integrations.reports import calls, check_report, profile

SOURCE = """
    import timm
    import torch
    from timm.data import create_loader
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3, NativeScaler, accuracy
    from torchvision.datasets import FakeData

    def loader(images, training):
        size, cpu = (3, 32, 32), torch.device("cpu")
        data = FakeData(images, size, 4)
        here = {"num_workers": 0, "persistent_workers": False, "use_prefetcher": False, "device": cpu}
        return create_loader(data, size, 4, is_training=training, **here)

    model = timm.create_model("resnet10t", num_classes=4)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    average = ModelEmaV3(model, decay=0.9)
    scaler = NativeScaler(device="cpu")
    schedule = CosineLRScheduler(optimizer, t_initial=5, warmup_t=1)
    criterion = LabelSmoothingCrossEntropy(0.1)
    train, test = loader(48, True), loader(8, False)
    updates = 0
    for epoch in range(8):
        model.train()
        for images, target in train:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = criterion(model(images), target)
            scaler(loss, optimizer, clip_grad=1.0, clip_mode="norm", parameters=model.parameters(), need_update=True)
            optimizer.zero_grad()
            updates += 1
            average.update(model, step=updates)
            schedule.step_update(num_updates=updates)
        for network in (model, average.module):
            network.eval()
            with torch.no_grad():
                for images, target in test:
                    accuracy(network(images), target, topk=(1,))
        schedule.step(epoch + 1)
"""


@pytest.mark.slow
def test_the_training_loop(tmp_path):
    run = profile(tmp_path, SOURCE)
    analysis = check_report(run, 8 * 12)
    assert calls(analysis)["aten::convolution"] == calls(analysis)["aten::convolution_backward"] == 14, "the model's convolutions"
    rows = {row.path: row.type for row in analysis.modules}
    assert (rows[""], rows["conv1.0"]) == ("ResNet", "Conv2d")
    assert rows["LabelSmoothingCrossEntropy"] == "LabelSmoothingCrossEntropy"
    assert any("evaluated its model" in note for note in run.facts.notes)
