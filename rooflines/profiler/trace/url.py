"""Names of traces that are URLs, and what of them may be shown.

A URL can hold credentials: ``user:password@``, a token or a presigned signature in the query or the fragment. Opening needs them; every
name, command line and message shows the URL without them.
"""

from __future__ import annotations

import re
from pathlib import Path

from rooflines.arguments import escaped

_USER = re.compile(r"(?<=://)[^/]*@")
_SECRET_FROM = re.compile(r"[?#]")
# In a sentence a URL ends at a space, a quote or a bracket; some libraries quote it without scheme and host.
_URL = re.compile(r"[^\s'\"<>]+://[^\s'\"<>]+")
_QUERY = re.compile(r"\?[^\s'\"<>]+")


def is_url(path: Path | str) -> bool:
    """Whether ``path`` names something that fsspec opens rather than a file here."""
    return isinstance(path, str) and "://" in path


def shown(source: Path | str) -> str:
    """``source`` as outputs and messages name it: of a URL no user, password, query or fragment; a file's name as ``escaped``."""
    text = escaped(str(source))
    if not is_url(text):
        return text
    scheme, mark, rest = _USER.sub("", text).partition("://")
    return scheme + mark + _SECRET_FROM.split(rest, maxsplit=1)[0]


def shown_reason(reason: str, source: str) -> str:
    """A library's sentence on why ``source`` cannot be opened, with every URL in it as ``shown``."""
    if not is_url(source):
        return reason
    return _QUERY.sub("", _URL.sub(lambda found: shown(found[0]), reason.replace(source, shown(source))))
