"""How a program ends, after some training: each function is a program, chosen by the first argument."""

import atexit
import os
import signal
import sys
import threading
import time

import torch
from small import network, train


def late_thread():
    """A thread that trains when the main thread has come to its end, for which Python waits."""
    atexit.register(print, "at exit")

    def work():
        threading.main_thread().join(0)
        time.sleep(0.2)
        train(4)
        print("thread ends", __name__)

    train(3)
    threading.Thread(target=work).start()
    print("main ends")


def exit_handlers():
    """Handlers at exit, in the reverse order, one of which raises, and one that is taken back."""

    def raises():
        raise ValueError("at exit")

    def removed():
        print("never")

    for number in range(3):
        atexit.register(print, "handler", number)
    atexit.register(raises)
    atexit.register(removed)
    train()
    atexit.unregister(removed)
    print("main ends")


def exit_text():
    """sys.exit with a text, which Python prints."""
    train(10)
    sys.exit("nothing to learn")


def exit_true():
    """sys.exit with values that are neither a number nor a text."""
    train(10)
    sys.exit(("a", 1))


def exec_other():
    """A program that another one replaces."""
    train(10)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", "print('another program'); raise SystemExit(4)"])


def excepthook():
    """Hooks for uncaught exceptions, in the main thread and in others."""
    threading.excepthook = lambda arguments: print("thread hook", arguments.exc_type.__name__, arguments.exc_value)
    sys.excepthook = lambda kind, value, trace: print("hook", kind.__name__, value, trace is not None, file=sys.stderr)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    train(10)
    raise ValueError("for the hook")


def hard_exit():
    """os._exit in the midst of training."""
    train(10)
    sys.stdout.flush()
    os._exit(3)


def interrupts_itself():
    """End with an uncaught KeyboardInterrupt."""
    train(10)
    raise KeyboardInterrupt


def raises():
    """An exception in a function that is not caught."""

    def inner(value):
        return 1 / value

    train(10)
    inner(0)


def raises_chained():
    """An exception with a cause, a context and a note."""

    class OwnError(Exception):
        pass

    def inner():
        try:
            raise KeyError("key")
        except KeyError as error:
            raise OwnError("two\nlines") from error

    train(10)
    try:
        inner()
    except OwnError as error:
        if hasattr(error, "add_note"):
            error.add_note("a note")
        raise RuntimeError("last")  # noqa: B904 (the context is shown)


def raises_in_backward():
    """An exception inside a backward pass, in a custom function."""

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise ValueError("no gradient")

    train(10)
    Broken.apply(torch.ones(3, requires_grad=True)).sum().backward()


def raises_in_torch():
    """An exception that torch raises inside a module."""
    train(10)
    network()(torch.ones(4, 9))


def terminated_gracefully():
    """SIGTERM to itself, with a handler that ends the program."""

    def handler(number, frame):
        print("ending", number)
        sys.exit(5)

    signal.signal(signal.SIGTERM, handler)
    train(10)
    os.kill(os.getpid(), signal.SIGTERM)


def terminates_itself():
    """SIGTERM to itself."""
    train(10)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def thread_raises():
    """A thread that ends with an exception, which Python prints."""

    def work():
        raise ValueError("in a thread")

    train(10)
    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    print("goes on")


globals()[sys.argv.pop(1)]()
