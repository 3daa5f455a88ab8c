"""Python's allocations: a program that is followed behaves as it does alone, and what it allocated is what it says."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rooflines.profiler.monitor.python_startup import sitecustomize
from rooflines.profiler.monitor.python_startup.sitecustomize import environment

TIMEOUT_S = 120


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


def run(*words, env=None):
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, env=env
    )
    return done.returncode, done.stdout, done.stderr


def followed(*words, output="memory.json"):
    """The same, followed; and what it wrote, None where it did not."""
    answer = run(*words, env=environment(os.path.abspath(output), os.environ))
    path = Path(output)
    return answer, json.loads(path.read_text()) if path.exists() else None


# --- a followed program is as it is alone

LOOKS_AROUND = """
import os, sys, threading, inspect
print(sys.argv, sys.path, sys.flags.safe_path if hasattr(sys.flags, "safe_path") else "", sys.orig_argv)
print({name: os.environ.get(name) for name in ("PYTHONPATH", "ROOFLINES_PYTHON_MEMORY")})
print(__name__, __package__, __doc__, __spec__ and __spec__.name, globals().get("__file__"), sorted(globals()))
print(type(__loader__), sys.modules["__main__"].__dict__ is globals(), [one.name for one in threading.enumerate()], __builtins__)
def here(): pass
try:
    print(inspect.getsource(here))
except OSError as error:
    print(error)
"""
PICKLES = """
import pickle, multiprocessing
class Point: x = 3
def cube(x): return x ** 3
if __name__ == "__main__":
    print(type(pickle.loads(pickle.dumps(Point()))) is Point)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(cube, [2, 3]))
"""
ENDINGS = {
    "raises": "def f(): raise ValueError('no')\ntry: f()\nexcept ValueError as error: raise KeyError('x') from error",
    "exits": "import sys; sys.exit(7)",
    "exits with a sentence": "import sys; sys.exit('so long')",
    "syntax": "def f(:",
    "interrupted": "raise KeyboardInterrupt",
    "hook": "import sys; sys.excepthook = lambda k, e, t: print('hooked', e, t.tb_frame.f_code.co_name, t.tb_next is None)\n1/0",
    "leaves": "import os; print('gone', flush=True); os._exit(5)",
    "at exit": "import atexit; atexit.register(print, 'bye'); import threading; threading.Thread(target=print, args=('late',)).start()",
}


@pytest.mark.parametrize(
    "words",
    [["script.py", "a", "--b"], ["./sub/../script.py"], ["-m", "script", "a"], ["-c", LOOKS_AROUND, "a"]],
    ids=lambda words: words[0],
)
def test_what_a_program_sees_of_itself(place, words):
    Path("script.py").write_text(LOOKS_AROUND)
    Path("sub").mkdir()
    alone = run(*words)
    assert alone[0] == 0
    assert followed(*words)[0] == alone


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("kind", ["script", "module"])
def test_how_a_program_ends(place, ending, kind):
    Path("script.py").write_text(ending)
    words = ["script.py"] if kind == "script" else ["-m", "script"]
    assert followed(*words)[0] == run(*words)


def test_a_directory_and_an_archive_run_their_main(place):
    Path("app").mkdir()
    Path("app/__main__.py").write_text("import helper, sys; print(helper.x, sys.argv, sys.path[0], __name__)")
    Path("app/helper.py").write_text("x = 4")
    assert followed("app", "z")[0] == run("app", "z")


def test_a_script_that_is_not_there(place):
    answer, _ = followed("none.py")
    assert answer == run("none.py")
    assert answer[0] == 2


def test_pickle_and_other_processes_find_main(place):
    Path("script.py").write_text(PICKLES)
    answer, memory = followed("script.py")
    assert answer == (0, "True\n[8, 27]\n", "")
    assert memory["ended"]


def test_a_forked_child_writes_nothing(place):
    Path("script.py").write_text("import os, sys\nif os.fork(): os.wait(); held = bytearray(1 << 20)\nelse: sys.exit(0)")
    _, memory = followed("script.py")
    assert memory["ended"]
    assert memory["peak_bytes"] > 1 << 20


# --- what it allocated

# Until the thread that reads has seen what is held: on a busy machine it may come late.
WAITS = """import json, time
held = {held}
while json.load(open('memory.json'))['sites_at_bytes'] < {megabytes} << 20: time.sleep(0.02)
"""
# A reading just below the peak is the last one: lines are read again only when a twentieth more is held.
HOLDS = (
    WAITS.format(held="[bytearray(1 << 20) for _ in range(64)]", megabytes=58) + "del held\nsmall = [object() for _ in range(1000)]\n"
)


def test_the_peak_and_the_line_that_held_it(place):
    Path("script.py").write_text(HOLDS)
    _, memory = followed("script.py")
    assert memory["schema"] == "rooflines.python_memory/1"
    assert 64 << 20 < memory["peak_bytes"] < 72 << 20
    assert memory["peak_bytes"] * 0.9 < memory["sites_at_bytes"] <= memory["peak_bytes"]
    first = memory["sites"][0]
    assert (first["file"], first["line"]) == ("script.py", 2)
    # the lines may be those of a reading up to a tenth below the peak
    assert memory["sites_at_bytes"] - (8 << 20) < first["bytes"] < 65 << 20
    assert first["blocks"] >= first["bytes"] >> 20
    assert memory["tracemalloc_bytes"] > 0


def test_no_line_says_where_somebodys_home_is(place):
    Path("inner").mkdir()
    Path("inner/mod.py").write_text("held = bytearray(1 << 20)")
    Path("script.py").write_text("import json, decimal, inner.mod")
    _, memory = followed("script.py")
    files = {site["file"] for site in memory["sites"]}
    assert "inner/mod.py" in files
    assert not any(os.path.isabs(file) for file in files)


def test_a_program_that_is_killed_leaves_what_was_last_read(place):
    Path("script.py").write_text("import time\nheld = bytearray(8 << 20)\ntime.sleep(600)")
    with subprocess.Popen([sys.executable, "script.py"], env=environment(os.path.abspath("memory.json"), os.environ)) as child:
        deadline = time.monotonic() + 60
        while not (Path("memory.json").exists() and json.loads(Path("memory.json").read_text())["peak_bytes"] > 8 << 20):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    memory = json.loads(Path("memory.json").read_text())
    assert not memory["ended"]
    assert memory["sites"][0]["line"] == 2


def test_a_program_that_uses_tracemalloc_itself_is_left_to_it(place):
    Path("script.py").write_text(
        WAITS.format(held="bytearray(4 << 20)", megabytes=4) + "import tracemalloc; tracemalloc.stop(); print(tracemalloc.is_tracing())"
    )
    answer, memory = followed("script.py")
    assert answer == (0, "False\n", "")
    assert memory["peak_bytes"] > 4 << 20


def test_a_place_that_cannot_be_written_is_no_affair_of_the_program(place):
    Path("script.py").write_text("print('done')")
    assert followed("script.py", output="absent/memory.json") == ((0, "done\n", ""), None)


def test_it_imports_the_standard_library_only():
    code = f"import runpy, sys; runpy.run_path({sitecustomize.__file__!r}); print(*{{name.partition('.')[0] for name in sys.modules}})"
    modules = set(subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "tracemalloc" in modules
    assert {name for name in modules if name not in sys.stdlib_module_names and not name.startswith("_")} == set()


def test_the_programs_own_sitecustomize_is_imported(place, monkeypatch):
    Path("own").mkdir()
    Path("own/sitecustomize.py").write_text("held = 'own'")
    Path("script.py").write_text("import os, sitecustomize; print(sitecustomize.held, os.environ['PYTHONPATH'])")
    monkeypatch.setenv("PYTHONPATH", "own")
    answer, memory = followed("script.py")
    assert answer == (0, "own own\n", "")
    assert memory["ended"]


def test_the_first_interpreter_of_a_shell_script_is_followed(place):
    Path("first.py").write_text("held = bytearray(8 << 20)")
    Path("second.py").write_text("pass")
    script = f"{sys.executable} first.py; {sys.executable} second.py"
    subprocess.run(["sh", "-c", script], check=True, env=environment(os.path.abspath("memory.json"), os.environ))
    memory = json.loads(Path("memory.json").read_text())
    assert memory["ended"]
    assert memory["peak_bytes"] > 8 << 20
