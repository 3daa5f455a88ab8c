"""What a program does with its process, streams and machine: each function is a program, chosen by the first argument."""

import contextlib
import faulthandler
import gc
import io
import locale
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import torch
from small import network, one_step, train
from torch import nn
from torch.optim import SGD


def changes_directory():
    """A program that changes its directory, as hydra does, and writes where it is."""
    os.makedirs("outputs/1")
    os.chdir("outputs/1")
    Path("notes.txt").write_text("here\n")
    train()
    Path("later.txt").write_text("here, too\n")
    print(Path.cwd().name)


def closed_streams():
    """Standard streams that the program closes."""
    train(4)
    sys.stdin.close()
    sys.stderr.close()
    train(10)
    sys.stdout.close()


def collects():
    """The garbage collector: thresholds, callbacks, frozen objects."""
    print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks))
    gc.callbacks.append(lambda phase, info: None)
    gc.disable()
    train(6)
    print(gc.isenabled(), len(gc.callbacks))
    gc.freeze()
    gc.set_threshold(100, 5, 5)
    train(10)
    print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0)
    gc.enable()


def fault_handler():
    """faulthandler, on from the start, with a timer that is canceled."""
    print("enabled before", faulthandler.is_enabled())
    faulthandler.enable()
    faulthandler.dump_traceback_later(60, exit=True)
    train()
    faulthandler.cancel_dump_traceback_later()
    print("enabled", faulthandler.is_enabled())


def forks():
    """A child that trains and comes to the program's end, and children that are waited for as they end."""
    train(6)
    sys.stdout.flush()
    if os.fork() == 0:
        train(3, "child ")
        print("child ends")
    else:
        print("status", os.wait()[1])
        for code in (3, 4):
            if os.fork() == 0:
                os._exit(code)
        ended = []
        try:
            while True:
                ended.append(os.waitstatus_to_exitcode(os.wait()[1]))
        except ChildProcessError:
            print("children", sorted(ended))
        train(10)


def interrupt_caught():
    """SIGINT to itself, caught, and one that a handler counts."""
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    train(4)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        train(10)
    except KeyboardInterrupt:
        print("caught")
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    os.kill(os.getpid(), signal.SIGINT)
    train()
    print(seen)


def limited_file_size():
    """A limit of the size of files, which one exceeds."""
    train(3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        with open("large.bin", "wb", buffering=0) as file:
            for _ in range(3):
                file.write(b"x" * 4096)
    except OSError as error:
        print(error.strerror)
    train()


def limited_files():
    """A low limit of open files, all of which are used."""
    train(3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    train(10)
    files = []
    try:
        while True:
            files.append(open("/dev/null"))
    except OSError as error:
        print(error.strerror, len(files) > 10)
    train(4)
    files.clear()
    print("closed")


def limited_memory():
    """A limit of the address space, which an allocation exceeds."""
    train(3)
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), -1))
    try:
        torch.empty(3 << 30, dtype=torch.uint8)
    except RuntimeError:
        print("not enough memory")
    train()


def logs():
    """Logging to a file and to standard error."""
    print(logging.getLogger().handlers, logging.getLogger().level, logging.root.manager.disable, logging.lastResort.level)
    logging.warning("by the first handler")
    logging.basicConfig(filename="log.txt", level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s", force=True)
    logging.getLogger("mine").info("into the file")
    train(8)
    logging.getLogger("mine").addHandler(logging.StreamHandler())
    logging.getLogger("mine").info("on both")
    logging.captureWarnings(True)
    train(8)


def no_streams():
    """Standard streams that are None, as under pythonw."""
    train(4)
    out, sys.stdout, sys.stderr, sys.stdin = sys.stdout, None, None, None
    train(10)
    os.write(1, b"written\n")
    out.write("and printed\n")


def reads_input():
    """A program that reads standard input, with prompts and line by line to the end."""
    print("read", repr(input("name? ")))
    train(6)
    print("read", repr(sys.stdin.readline()))
    train(8)
    print("rest", sys.stdin.read().splitlines())
    try:
        input("more? ")
    except EOFError:
        print("no more")


def recurses():
    """Recursion almost as deep as Python allows."""

    def depth(left):
        return 0 if left == 0 else 1 + depth(left - 1)

    def nested(module, times):
        for _ in range(times):
            module = nn.Sequential(module)
        return module

    train(8)
    print(depth(sys.getrecursionlimit() - 60))
    model = nested(nn.Linear(2, 2), 150)
    with torch.no_grad():
        print(model(torch.ones(1, 2)).shape)


def redirected_descriptors():
    """The descriptors of standard output and error, redirected to files and back, and to a file for good."""
    train(3)
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open("redirected.txt", os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    train(5)
    os.write(2, b"to error\n")
    sys.stdout.flush()
    os.dup2(kept[0], 1)
    os.dup2(kept[1], 2)
    train(10)
    print("back", file=sys.stderr)
    sys.stdout.flush()
    os.dup2(os.open("last.txt", os.O_CREAT | os.O_WRONLY), 1)
    print("to the last file")


def removed_directory():
    """A program whose working directory is gone."""
    train(2)
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    train()
    try:
        os.getcwd()
    except FileNotFoundError:
        print("no directory")


def removes_all():
    """A program that removes all directories beside it at its end."""
    train()
    for name in sorted(os.listdir(".")):
        if os.path.isdir(name) and name != "out":
            print(name)
            shutil.rmtree(name)


def replaced_streams():
    """Standard output and error that the program replaces, by a copy to a file and by memory."""

    class Both:
        def __init__(self, stream, file):
            self.stream, self.file = stream, file

        def write(self, text):
            self.file.write(text)
            return self.stream.write(text)

        def flush(self):
            self.stream.flush()

    file = open("copy.txt", "w", buffering=1)
    with contextlib.redirect_stdout(io.StringIO()) as memory, contextlib.redirect_stderr(memory):
        train(5)
    print("in memory", memory.getvalue().count("loss"), len(memory.getvalue()))
    sys.stdout = Both(sys.stdout, file)
    sys.stderr = Both(sys.stderr, file)
    train(10)
    print("to error", file=sys.stderr)


def sets_locale():
    """A locale of the program's own, and numbers that depend on it."""
    print(locale.setlocale(locale.LC_ALL))
    for name in ("C.UTF-8", "de_DE.UTF-8", "C"):
        try:
            print(locale.setlocale(locale.LC_ALL, name))
        except locale.Error as error:
            print(error)
        print(f"{1234567.5:n}", locale.localeconv()["decimal_point"], locale.getpreferredencoding(False))
        train(6)


def signal_handlers():
    """Handlers of several signals, a timer, and an alarm."""
    seen = {}

    def handler(number, frame):
        seen[signal.Signals(number).name] = seen.get(signal.Signals(number).name, 0) + 1

    for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG, signal.SIGCHLD, signal.SIGPROF):
        print(number.name, signal.signal(number, handler) == signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG):
        os.kill(os.getpid(), number)
    train()
    while "SIGALRM" not in seen:
        signal.pause()
    signal.alarm(100)
    print(signal.alarm(0) > 90)
    print(sorted(seen.items()))


def streams():
    """What the program sees of its streams and of the interpreter."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        print(stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty(), stream.fileno(), stream.line_buffering)
        print(stream is getattr(sys, f"__{stream.name.strip('<>')}__"))
    print(sys.flags, sys.warnoptions, sys._xoptions, sys.executable, sys.dont_write_bytecode)
    print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.displayhook is sys.__displayhook__)
    print(sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.exc_info())
    train()


def subprocesses():
    """Other programs that are started: Python with torch, Python without, a shell."""
    train(6)
    code = "import torch; m = torch.nn.Linear(2, 2); print(m(torch.ones(1, 2)).shape); raise SystemExit(6)"
    for command in (
        [sys.executable, "-c", code], [sys.executable, "-S", "-c", "import sys; print('torch' in sys.modules, sys.argv)"],
        ["sh", "-c", "cat; echo $0 >&2; exit 2"],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, input="given\n")
        print(done.returncode, done.stdout, done.stderr)
    train(10)


def threads_seen():
    """The threads, children, signals and modules that the program sees."""
    train(10)
    print([thread.name for thread in threading.enumerate()])
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    print(len(children), "children")
    print([number.name for number in signal.Signals if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)])
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getpgid(0) == os.getpgid(os.getppid()), os.umask(0o22))
    print(threading.stack_size(), threading.current_thread() is threading.main_thread(), threading.get_native_id() == os.getpid())
    try:
        print(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        print("no children to wait for")


def traces_memory():
    """tracemalloc, off at first, on for the program's own allocations."""
    print(tracemalloc.is_tracing())
    tracemalloc.start(3)
    train()
    kept = [bytes(1000) for _ in range(50)]  # noqa: F841 (they are in the snapshot)
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)]).statistics("filename")
    print(len(found), found[0].size >= 50_000, tracemalloc.get_traceback_limit())
    tracemalloc.stop()


def variables():
    """The environment, as this program and one that it starts see it."""
    train(6)
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch sets it as it is imported
    print(*sorted(os.environ.items()), sep="\n")
    listing = "import os; print(*sorted(os.environ.items()), sep='\\n')"
    print(subprocess.run([sys.executable, "-S", "-c", listing], capture_output=True, text=True).stdout)
    train(10)


def half_lines():
    """Lines that are written in parts while others are printed between them, on both streams."""
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    for step in range(14):
        print(f"step {step} ...", end="", flush=True)
        print(f"step {step}", end=" ... ", file=sys.stderr, flush=True)
        loss = one_step(model, optimizer)
        print(f" loss {loss:.6f}")
        print("done", file=sys.stderr)


globals()[sys.argv.pop(1)]()
