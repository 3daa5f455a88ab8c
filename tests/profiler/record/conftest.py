"""Programs that are profiled in processes of their own."""

import textwrap

import pytest

import rooflines
from tests.commands import quick, run


@pytest.fixture
def profiled(tmp_path):
    """Profile a program; the answer and its run, which is in ``out`` beside it, None where there is none."""

    def ask(source, *arguments, name="train.py", options=(), code=0, given=""):
        (tmp_path / name).write_text(textwrap.dedent(source))
        words = ["profile", name, *quick(tmp_path), "-o", "out", *options, "--", *arguments]
        answer = run(*words, cwd=tmp_path, given=given)
        assert answer.code == code, answer
        return answer, rooflines.load(tmp_path / "out") if (tmp_path / "out" / "run.json").exists() else None

    return ask
