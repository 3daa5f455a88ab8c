"""``rooflines.log`` with the real trackers, offline."""

import json
import os
from pathlib import Path

import pytest

import rooflines
from rooflines.errors import UsageError
from tests.printing import curves

TRACE = Path(__file__).parents[1] / "data" / "traces" / "bert-small_h100_inference.json.gz"


@pytest.fixture(scope="module")
def analysis():
    return rooflines.analyze(TRACE)


@pytest.mark.ci
def test_tensorboard_gets_the_figures_and_the_page(analysis, tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        assert rooflines.log(analysis, writer) == ["tensorboard"]
    stored = curves(tmp_path)
    assert stored.Scalars("rooflines/flops")[0].value == pytest.approx(analysis.totals.flops)
    assert "rooflines/page/text_summary" in stored.Tags()["tensors"]


@pytest.mark.ci
def test_an_active_run_of_mlflow_gets_figures_page_and_operators(analysis, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        assert "mlflow" in rooflines.log(analysis)
    folder = next(tmp_path.rglob(run.info.run_id))
    assert float((folder / "metrics" / "rooflines.flops").read_text().split()[1]) == analysis.totals.flops
    assert analysis.verdict.partition(":")[0] in (folder / "artifacts" / "rooflines.html").read_text()
    operators = json.loads((folder / "artifacts" / "rooflines_operators.json").read_text())
    assert len(operators["data"]) == len(analysis.operators)


@pytest.mark.ci
def test_an_active_run_of_wandb_gets_figures_page_and_operators(analysis, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path)), ("WANDB_SILENT", "true")):
        monkeypatch.setenv(name, value)
    with wandb.init(project="rooflines") as run:
        assert rooflines.log(analysis, run) == ["wandb"]
        assert dict(run.summary)["rooflines/flops"] == analysis.totals.flops
    assert [name for _, _, files in os.walk(tmp_path) for name in files if name.endswith(".html")]


@pytest.mark.ci
def test_without_a_tracker_and_with_something_else(analysis):
    with pytest.raises(UsageError, match="is no tracker"):
        rooflines.log(analysis, object())
