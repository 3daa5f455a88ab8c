"""The part of the tests marked ``gpu`` elsewhere: what is recorded of a run of pytest, also of one that is stopped."""

import pytest

from tests.gpu import test_tests as part
from tests.gpu.parts import NotMeasured, Recorder
from tests.gpu.rehearsal import CPU

CODE = """
import pytest, time
def test_alpaca(): pass
def test_bison(): pass
@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass
def test_cobra(): assert 1 == 2
def test_slow(): time.sleep(600)
"""


@pytest.mark.ci
@pytest.mark.parametrize(("names", "verdict", "error"), [
    ("alpaca or bison or skipped", (True, "2 passed, 1 skipped"), ""),
    ("alpaca or cobra", (False, "1 failed, 1 passed"), ""),
    # tests that hang leave the results so far
    ("alpaca or slow", (True, "1 passed"), "stopped after 6 s in "),
    ("skipped", "none ran: 1 skipped", ""),
    ("nothing", None, ""),
])  # fmt: skip
def test_results_are_counted(tmp_path_factory, names, verdict, error):
    folder = tmp_path_factory.mktemp("x")  # pytest -k looks at the names of all folders above, too
    (folder / "test_cases.py").write_text(CODE)
    recorder = Recorder(folder, CPU, 6.0 if "slow" in names else 120.0)
    part.run_tests(recorder, ["-k", names, "-p", "no:randomly", str(folder / "test_cases.py")])
    assert error in recorder.error
    assert recorder.error.endswith("test_cases.py::test_slow" if error else "")
    if verdict is None:
        with pytest.raises(NotMeasured, match="no test ran"):
            part.all_pass(recorder.findings, CPU)
    else:
        assert part.all_pass(recorder.findings, CPU) == verdict


def test_only_files_with_such_tests_are_collected(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(part, "run_tests", lambda recorder, arguments: asked.extend(arguments))
    part.run_commands(Recorder(tmp_path, CPU, 120.0))
    assert asked[:2] == ["-m", "gpu and not slow"]
    assert "tests/pipeline/test_gpu.py" in asked
    assert any("networks/test_cnn_cuda.py" in name for name in asked)
    assert not any(name.startswith("tests/gpu/") or name == "tests/test_units.py" for name in asked)
