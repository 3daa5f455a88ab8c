"""A training loop written as torchvision's reference for classification."""

import pytest

from tests.integrations.reports import calls, check_report, profile

SOURCE = """
    import torch
    from torch import nn
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    from torch.utils.data import DataLoader
    from torchvision.datasets import FakeData
    from torchvision.models import squeezenet1_1
    from torchvision.transforms import v2

    def train_one_epoch(model, criterion, optimizer, data_loader, device, model_ema):
        model.train()
        for i, (image, target) in enumerate(data_loader):
            image, target = image.to(device), target.to(device)
            with torch.amp.autocast("cpu", enabled=False):
                output = model(image)
                loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if i % 2 == 0:
                model_ema.update_parameters(model)

    def evaluate(model, criterion, data_loader, device):
        model.eval()
        with torch.inference_mode():
            for image, target in data_loader:
                criterion(model(image.to(device)), target.to(device))

    transform = v2.Compose([v2.ToImage(), v2.RandomCrop(32), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    train = DataLoader(FakeData(40, (3, 36, 36), 4, transform), batch_size=4, shuffle=True)
    test = DataLoader(FakeData(8, (3, 36, 36), 4, transform), batch_size=4)
    model = squeezenet1_1(num_classes=4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model_ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    for epoch in range(10):
        train_one_epoch(model, criterion, optimizer, train, "cpu", model_ema)
        schedule.step()
        evaluate(model, criterion, test, "cpu")
        evaluate(model_ema, criterion, test, "cpu")
"""


@pytest.mark.ci
def test_the_reference_loop(tmp_path):
    run = profile(tmp_path, SOURCE)
    analysis = check_report(run, 10 * 10)
    assert calls(analysis)["aten::convolution"] == calls(analysis)["aten::convolution_backward"] == 26, "the model's convolutions"
    rows = {row.path: row.type for row in analysis.modules}
    assert (rows[""], rows["classifier.1"], rows["CrossEntropyLoss"]) == ("SqueezeNet", "Conv2d", "CrossEntropyLoss")
    assert analysis.division.loader_s
    assert any("evaluated its model" in note for note in run.facts.notes)
