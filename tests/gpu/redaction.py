"""What may leave this machine: texts without hosts, users, addresses, serial numbers and secrets, and a zip of such texts.

The folder of evidence keeps all files as they are. What goes into the zip is redacted first, and only texts can be: device samples
are written as JSON lines; reports and other files that can be made again from what is there are left out.
"""

from __future__ import annotations

import functools
import getpass
import gzip
import ipaddress
import json
import os
import platform
import re
import time
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rooflines.errors import RooflinesError
from rooflines.profiler.directory import SAMPLES_FILE
from rooflines.profiler.samplers.storage import read_samples
from rooflines.serial import to_plain

# Issue trackers accept attachments of 25 MB.
MOST_ZIPPED_BYTES = 24_000_000
_MOST_READ_BYTES = 100_000_000  # of one file: a longer trace takes too long to redact
_TEXTS = (".json", ".jsonl", ".txt", ".csv", ".html")
_REPORTS = ("report.html", "report.json")
# Variables whose values are secrets, by their names.
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|COOKIE|SESSION", re.IGNORECASE)
_LEAST_SECRET = 6  # a shorter value is a switch or a number, not a secret
# Names in common use, which do not identify a user or a machine. They stay, so that logs can be read.
_COMMON = {
    "root", "user", "users", "ubuntu", "debian", "admin", "runner", "jovyan", "docker", "home", "localhost", "localhost.localdomain",
    "gpu", "cuda", "node", "host", "worker", "python", "torch", "linux",
}  # fmt: skip

_SECRET_KEY = r"[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key)"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # fields of JSON that hold a name, a place or a secret
    (
        re.compile(rf'("(?:host|host_?name|Host Name|user|user_?name|cwd|{_SECRET_KEY})"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE),
        r'\1""',
    ),
    # nvidia-smi -q: the identity of a board and its place, and the programs that use it
    (
        re.compile(
            r'^([^:\n"]*\b(?:Serial Number|\w*[GU]UID|Host ID|PDI|Slot Number|Tray Index|Name(?=\s{2,}:\s*[/\[]))[^:\n"]*:).*$',
            re.MULTILINE | re.IGNORECASE,
        ),
        r"\1 (removed)",
    ),
    # addresses with user information or a query, either of which may hold a token
    (re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@\"']+@"), r"\1"),
    (re.compile(r"\b([a-z][a-z0-9+.-]*://[^\s?\"']+)\?[^\s\"']+"), r"\1?(removed)"),
    # tokens by their form: Hugging Face, GitHub, GitLab, OpenAI and similar, PyPI, Slack, AWS, JSON web tokens, headers
    (
        re.compile(
            r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|pypi-|xox[a-z]-)[A-Za-z0-9_-]{8,}|\bAKIA[0-9A-Z]{12,}"
            r"|\beyJ[\w-]{8,}\.[\w.-]+|(?<=Bearer )[^\s\"']+"
        ),
        "(a token)",
    ),
    (re.compile(rf"(?<!\")\b({_SECRET_KEY}\s*[=:]\s*)[^\s\"',&]+", re.IGNORECASE), r"\1(removed)"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "(a UUID)"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "(an e-mail address)"),
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?!\w|:\w)", re.IGNORECASE), "(a MAC address)"),
    # the home directory of any user
    (re.compile(r"(?:/home|/Users|[A-Za-z]:(?:\\\\?|/)Users)(?:\\\\?|/)[^/\\\s\"':,]+"), "~"),
)
# Four numbers after "==" are a version: nvidia-cublas==13.0.2.14.
_IPV4 = re.compile(r"(?<![\w.])(?<![=~<>!]=)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){1,6}:[0-9a-f]{1,4}(?!\w|:\w)", re.IGNORECASE)


# A string with the key before it, whose name may say what it is.
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*:\s*"(?:[^"\\]|\\.)*")?')


def bundle(
    files: Sequence[Path], folder: Path, target: Path, redaction: Redaction, *, until: float, most_bytes: int = MOST_ZIPPED_BYTES
) -> list[str]:
    """Write ``files`` and what is in ``folder``, redacted, to the zip ``target``; returns the files that were left out, with reasons.

    Small files come first, so that a trace that is too large leaves out nothing but itself. After the time ``until`` (time.monotonic)
    nothing is added.
    """
    omitted: list[str] = []
    raw = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (*files, *raw):
            inside = path.relative_to(folder.parent) if path in raw else Path(path.name)
            name = redaction.text(inside.as_posix())
            try:
                if time.monotonic() > until:
                    raise _Omitted("no time was left")
                last, content = _redacted(path, redaction)
                if target.stat().st_size + len(zlib.compress(content)) > most_bytes:
                    raise _Omitted(f"the zip would exceed {most_bytes // 1_000_000} MB")
            except _Omitted as reason:
                omitted.append(f"{name}: {reason}")
                continue
            archive.writestr(str(PurePosixPath(name).with_name(redaction.text(last))), content)
        archive.writestr(f"{folder.name}/left_out.txt", "".join(f"{line}\n" for line in omitted) or "nothing was left out\n")
    return omitted


class _Omitted(Exception):
    """Why a file is not in the zip."""


def _redacted(path: Path, redaction: Redaction) -> tuple[str, bytes]:
    """Return the name and the content that ``path`` has in the zip. Raises _Omitted for a file that is not put there."""
    if path.name == SAMPLES_FILE:
        try:
            lines = "".join(f"{json.dumps(to_plain(sample))}\n" for sample in read_samples(path))
        except (OSError, RooflinesError) as error:
            raise _Omitted(str(error)) from None
        return f"{path.stem}.jsonl", redaction.text(lines).encode()
    packed = path.suffix == ".gz"
    if path.name in _REPORTS or (path.with_suffix("") if packed else path).suffix not in _TEXTS:
        raise _Omitted("not a text, or a report that can be made from the other files")
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(_MOST_READ_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:  # of a process that was stopped while it wrote
        raise _Omitted(f"cannot be read: {type(error).__name__}") from None
    if len(content) > _MOST_READ_BYTES:
        raise _Omitted(f"larger than {_MOST_READ_BYTES // 1_000_000} MB")
    redact = redaction.json if ".json" in path.suffixes else redaction.text
    content = redact(content.decode(errors="replace")).encode()
    return path.name, gzip.compress(content, mtime=0) if packed else content


class Redaction:
    """Removes from texts the given names, directories and secrets, and everything that has the form of one."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str], homes: Iterable[str], secrets: Iterable[str]) -> None:
        known = {home: "~" for home in homes if len(home) > 1 and home.strip("/") not in _COMMON}
        known |= {secret: "(a secret)" for secret in secrets if len(secret) >= _LEAST_SECRET}
        known |= {json.dumps(text)[1:-1]: shown for text, shown in known.items()}  # as JSON spells them
        words = dict.fromkeys(hosts, "(host)") | dict.fromkeys(users, "(user)")
        words = {word: shown for word, shown in words.items() if len(word) > 1 and word.lower() not in _COMMON}
        self._shown = known | {word.lower(): shown for word, shown in words.items()}
        # longest first: a host is also a part of its full name
        literal = [re.escape(text) for text in sorted(known, key=len, reverse=True)]
        bounded = [rf"(?<![A-Za-z0-9])(?i:{re.escape(word)})(?![A-Za-z0-9])" for word in sorted(words, key=len, reverse=True)]
        self._known = re.compile("|".join([*literal, *bounded]) or r"(?!)")

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Redaction:
        """Return the redaction of this machine, its user and the secrets in ``environment``."""
        host = platform.node()
        hosts = {host, host.partition(".")[0], *(environment.get(name, "") for name in ("HOSTNAME", "COMPUTERNAME"))}
        users = {_user(), *(environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"))}
        homes = {str(Path.home()), environment.get("HOME", ""), environment.get("USERPROFILE", "")}
        secrets = [value for name, value in environment.items() if _SECRET_NAME.search(name)]
        return cls(hosts - {""}, users - {""}, homes - {""}, secrets)

    def text(self, text: str) -> str:
        """Return ``text`` without them."""
        text = self._known.sub(lambda found: self._shown.get(found[0]) or self._shown[found[0].lower()], text)
        for pattern, shown in _PATTERNS:
            text = pattern.sub(shown, text)
        text = _IPV4.sub(_address, text)
        return _IPV6.sub(_address, text)

    def json(self, text: str) -> str:
        """Return the JSON ``text`` without them. Only strings can hold them; a trace repeats a few, and each is redacted once."""
        redacted = functools.cache(self.text)
        return _JSON_STRING.sub(lambda found: redacted(found[0]), text)


def _address(found: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(found[0])
    except ValueError:  # a version, a time
        return found[0]
    groups = [group for group in found[0].split(":") if group]
    is_name = ":" in found[0] and len(groups) < 3 and len(groups[0]) < 4  # in C++: c10::f
    return found[0] if is_name else "(an IP address)"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without an entry in the system
        return ""
