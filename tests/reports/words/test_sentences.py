"""The command that a report suggests."""

import pytest

from rooflines.reports.words.sentences import suggested
from rooflines.roofline.analysis import Finding


@pytest.mark.parametrize(("command", "option", "value", "expected"), [
    ("rooflines profile --model resnet50 -o OUT", "compile", "on", "rooflines profile --model resnet50 --compile on"),
    ("rooflines profile --model m --batch-size 4 -q", "batch_size", 8, "rooflines profile --model m --batch-size 8"),
    ("rooflines profile --model=m --precision=fp32 --formats pdf", "precision", "bf16", "rooflines profile --model=m --precision bf16"),
    ("rooflines profile train.py -- -o x --compile", "compile", "on", "rooflines profile train.py --compile on -- -o x --compile"),
    ("my_training.py", "channels_last", True, "what it says itself"),
    ("rooflines profile --model m", None, None, "what it says itself"),
])  # fmt: skip
def test_the_suggested_command_is_the_run_s_own_with_one_change(command, option, value, expected):
    finding = Finding(title="", saves_s=0.0, evidence="", suggestion="what it says itself", option=option, value=value)
    assert suggested(finding, command) == expected
