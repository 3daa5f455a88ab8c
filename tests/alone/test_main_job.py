"""The main job as a newcomer types it, with the ceilings of this machine."""

import json
import subprocess
import sys

import pytest

from tests.pipeline.networks.recordings import check_sums

# Takes seconds to compile, to start or to load.
pytestmark = pytest.mark.ci


def test_main_job_end_to_end(tmp_path):
    """What a newcomer types, with this machine's own ceilings: every report is there and no operator beats its bound."""
    output = tmp_path / "run"
    command = [sys.executable, "-m", "rooflines", "profile", "--model", "resnet50", "--device", "cpu", "--batch-size", "4"]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    analysis = json.loads((output / "analysis.json").read_text())
    assert analysis["totals"]["matrix_flops"] == pytest.approx(2 * 4.089e9 * 4, rel=1e-3)
    assert analysis["coverage"]["modeled_time_fraction"] >= 0.97
    assert max(row.get("efficiency", 0) for row in analysis["operators"]) <= 1.1
    assert any(row["module"] == "layer1.0.conv2" for row in analysis["operators"] if row["category"] == "convolution")
    check_sums(analysis)
    for name in ("run.json", "samples.parquet", "operators.parquet", "operators.csv", "report.html", "report.pdf"):
        assert (output / name).stat().st_size > 0, name
    assert (output / "report.html").stat().st_size < 400_000
    assert list(output.glob("*.pt.trace.json.gz"))
    assert list(output.glob("events.out.tfevents.*"))
    assert analysis["steps"]["profiler_dilation"] > 0
    assert "profiler" in done.stdout
    assert str(output / "report.html") in done.stdout
