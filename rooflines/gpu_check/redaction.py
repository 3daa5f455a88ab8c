"""Redaction of texts that leave this machine: no host, user, address, serial number or secret of its owner stays in them."""

from __future__ import annotations

import getpass
import ipaddress
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

# Variables whose values are secrets, by their names.
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|COOKIE|SESSION", re.IGNORECASE)
_LEAST_SECRET = 6  # a shorter value is a switch or a number, not a secret
# Names that many machines share: they identify nobody, and replacing them would spoil half of a text.
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
        """The redaction of this machine, its user and the secrets in ``environment``."""
        host = platform.node()
        hosts = {host, host.partition(".")[0], *(environment.get(name, "") for name in ("HOSTNAME", "COMPUTERNAME"))}
        users = {_user(), *(environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"))}
        homes = {str(Path.home()), environment.get("HOME", ""), environment.get("USERPROFILE", "")}
        secrets = [value for name, value in environment.items() if _SECRET_NAME.search(name)]
        return cls(hosts - {""}, users - {""}, homes - {""}, secrets)

    def text(self, text: str) -> str:
        """``text`` without them."""
        text = self._known.sub(lambda found: self._shown.get(found[0]) or self._shown[found[0].lower()], text)
        for pattern, shown in _PATTERNS:
            text = pattern.sub(shown, text)
        text = _IPV4.sub(_address, text)
        return _IPV6.sub(_address, text)

    def json(self, text: str) -> str:
        """The same for JSON, where only strings can hold them; each distinct one is looked at once, of which a trace repeats a few."""
        known: dict[str, str] = {}

        def shown(found: re.Match[str]) -> str:
            part = found[0]
            if part not in known:
                known[part] = self.text(part)
            return known[part]

        return _JSON_STRING.sub(shown, text)


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
