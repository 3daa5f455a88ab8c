"""An exception with a cause, a context and a note."""

from small import train


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
