"""Checkpoints on a full disk: one error names the cause, and the previous checkpoint is kept."""

import pytest
import torch

from rooflines.errors import OutputError
from rooflines.profiler.training.loop import read_checkpoint, write_checkpoint
from tests.commands import mounted


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path):
    with mounted("-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path):
        path = tmp_path / "seed-0.pt"
        write_checkpoint(path, {"epoch": 1})
        with pytest.raises(OutputError, match=r"cannot write the checkpoint .*No space left on device"):
            write_checkpoint(path, {"weights": torch.zeros(100_000)})
        assert read_checkpoint(path) == {"epoch": 1}
        assert list(tmp_path.iterdir()) == [path]
