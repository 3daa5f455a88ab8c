"""The options of ``profile`` as a run stores them."""

from pathlib import Path

import torch

from rooflines.pipeline.options import ProfileOptions


def test_a_run_stores_the_options_that_are_not_their_defaults():
    assert ProfileOptions().changed() == {}
    given = ProfileOptions(
        batch_size=8,
        compile=True,
        device=torch.device("cpu"),
        steps=3,
        output=Path("here"),
        formats=("json",),
        trace=False,
        remeasure=True,
    )
    assert given.changed() == {"batch_size": 8, "compile": "on", "device": "cpu", "steps": 3}
    assert ProfileOptions(**given.changed()).changed() == given.changed()
