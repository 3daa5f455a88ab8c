"""A program that starts with our ``sitecustomize`` behaves as it does alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rooflines.profiler.monitor.python_startup import sitecustomize
from rooflines.profiler.monitor.python_startup.sitecustomize import child_environment

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


def followed(*words):
    """The same, with the variables that a child of a recorded program has."""
    return run(*words, env=child_environment("an order", os.environ))


LOOKS_AROUND = """
import os, sys, threading, inspect
print(sys.argv, sys.path, sys.flags.safe_path if hasattr(sys.flags, "safe_path") else "", sys.orig_argv)
print({name: os.environ.get(name) for name in ("PYTHONPATH", "ROOFLINES_CHILD")})
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
    [["script.py", "a", "--b"], ["./sub/../script.py"], ["-m", "script", "a"], ["-c", LOOKS_AROUND, "a"], ["app", "z"], ["none.py"]],
    ids=lambda words: words[0],
)
def test_what_a_program_sees_of_itself(place, words):
    Path("script.py").write_text(LOOKS_AROUND)
    Path("sub").mkdir()
    Path("app").mkdir()
    Path("app/__main__.py").write_text("import helper, sys; print(helper.x, sys.argv, sys.path[0], __name__)")
    Path("app/helper.py").write_text("x = 4")
    alone = run(*words)
    assert alone[0] == (2 if words == ["none.py"] else 0)
    assert followed(*words) == alone


@pytest.mark.ci
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("kind", ["script", "module"])
def test_how_a_program_ends(place, ending, kind):
    Path("script.py").write_text(ending)
    words = ["script.py"] if kind == "script" else ["-m", "script"]
    assert followed(*words) == run(*words)


def test_pickle_and_other_processes_find_main(place):
    Path("script.py").write_text(PICKLES)
    assert followed("script.py") == (0, "True\n[8, 27]\n", "")


def test_it_imports_the_standard_library_only():
    code = f"import runpy, sys; runpy.run_path({sitecustomize.__file__!r}); print(*{{name.partition('.')[0] for name in sys.modules}})"
    modules = set(subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "os" in modules
    assert {name for name in modules if name not in sys.stdlib_module_names and not name.startswith("_")} == set()


def test_the_programs_own_sitecustomize_is_imported(place, monkeypatch):
    Path("own").mkdir()
    Path("own/sitecustomize.py").write_text("held = 'own'")
    Path("script.py").write_text("import os, sitecustomize; print(sitecustomize.held, os.environ['PYTHONPATH'])")
    monkeypatch.setenv("PYTHONPATH", "own")
    assert followed("script.py") == (0, "own own\n", "")
