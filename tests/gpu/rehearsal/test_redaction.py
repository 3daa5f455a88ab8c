"""What leaves this machine: no host, user, home directory, address, serial number or secret; and everything else as it was."""

import gzip
import json
from pathlib import Path

import pytest

from tests.gpu.redaction import Redaction

TRACES = Path(__file__).parents[2] / "data" / "traces"
ENVIRONMENT = {
    "HOSTNAME": "falcon-7.example.org", "USER": "wendeline", "HOME": "/srv/people/wendeline", "HF_TOKEN": 'tok"en\\4711',
    "WANDB_API_KEY": "0123456789abcdef", "SESSION_COUNT": "12", "PATH": "/usr/bin",
}  # fmt: skip
SMI = """\
==============NVSMI LOG==============
Driver Version                            : 570.124.06
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H200
    Serial Number                         : 1654923001234
    GPU UUID                              : GPU-2f1c9a34-aaaa-bbbb-cccc-0123456789ab
    GPU PDI                               : 0x1234567890abcdef
    Minor Number                          : 2
    Platform Info
        Chassis Serial Number             : 7788
        Slot Number                       : 4
        Host ID                           : 3
    Clocks
        SM                                : 1980 MHz
    Processes
        Process ID                        : 4711
            Type                          : C
            Name                          : /opt/people/anna/bin/python
            Used GPU Memory               : 3 MiB
"""


@pytest.fixture(scope="module")
def redaction():
    return Redaction.here(ENVIRONMENT)


@pytest.mark.parametrize("secret", [
    "falcon-7.example.org", "wendeline", "/srv/people/wendeline", "0123456789abcdef", "hf_abcdefghijklmnopqrst",
    "ghp_abcdefghij0123456789", "github_pat_11ABCDEFG0123456789", "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "sk-proj-abcdefgh12345678", "10.11.12.13", "fe80::42:acff:fe11:2", "2001:db8::1",
    "02:42:ac:11:00:02", "someone@example.com", "GPU-2f1c9a34-aaaa-bbbb-cccc-0123456789ab", "/home/bertram", "/Users/bertram",
])  # fmt: skip
@pytest.mark.parametrize("around", ["{}", "at {}: done", "see {}/file.py, line 3", '{{"name": "{}"}}', "<b>{}</b>", "addr={}"])
def test_names_addresses_and_tokens_are_removed(redaction, secret, around):
    text = around.format(secret)
    assert secret not in redaction.text(text)
    if text.startswith("{"):
        assert secret not in redaction.json(text)
        json.loads(redaction.json(text))


def test_names_and_secrets_in_any_spelling_are_removed(redaction):
    # A name in other letters and the first part of a host.
    shown = Redaction(["falcon-7.example.org", "falcon-7"], ["wendeline"], [], []).text(
        "FALCON-7 Falcon-7.Example.Org Wendeline's run_wendeline"
    )
    assert shown == "(host) (host) (user)'s run_(user)"
    assert redaction.text("falconry wendelines") == "falconry wendelines"
    # A secret of the environment is removed as json spells it.
    text = json.dumps({"said": f"login with {ENVIRONMENT['HF_TOKEN']} failed"})
    assert json.loads(redaction.json(text)) == {"said": "login with (a secret) failed"}
    assert redaction.text("12 steps") == "12 steps"  # SESSION_COUNT is too short to be a secret
    # Fields of json by their name.
    facts = {
        "host": "other",
        "environment": {"hostname": 'b"c', "api_key": "x", "device_name": "NVIDIA H200"},
        "tokens": 512,
        "token": 3,
    }
    assert json.loads(redaction.json(json.dumps(facts))) == {
        "host": "", "environment": {"hostname": "", "api_key": "", "device_name": "NVIDIA H200"}, "tokens": 512, "token": 3,
    }  # fmt: skip


@pytest.mark.parametrize(("address", "expected"), [
    ("https://anna:pa55word@host.invalid/simple?token=abc", "https://host.invalid/simple?(removed)"),
    ("git+https://pa55word@host.invalid/x.git", "git+https://host.invalid/x.git"),
    ("--password=pa55word --steps 3", "--password=(removed) --steps 3"),
    ("API_KEY: pa55word", "API_KEY: (removed)"),
    ("Authorization: Bearer pa55word", "Authorization: Bearer (a token)"),
])  # fmt: skip
def test_addresses_keep_their_place_and_lose_their_secrets(redaction, address, expected):
    assert redaction.text(address) == expected


def test_what_is_no_secret_stays(redaction):
    # Nvidia smi keeps the figures and loses the board.
    shown = redaction.text(SMI)
    for secret in ("1654923001234", "2f1c9a34", "0x1234567890abcdef", "7788", "anna"):
        assert secret not in shown
    for kept in ("570.124.06", "00000000:1B:00.0", "NVIDIA H200", "1980 MHz", "Minor Number                          : 2", "3 MiB"):
        assert kept in shown
    assert len(shown.splitlines()) == len(SMI.splitlines())
    # Versions times and kernel names stay.
    text = (
        "nvidia-cublas-cu12==12.4.5.8\nnumba-cuda>=0.30.0.1\ndriver 570.124.06\n12:34:56 2026-11-23T18:00:00+00:00\n"
        "at::native::(anonymous namespace)::f(c10::Half)::{lambda()#1}::operator()\n0x1B:00.0 abcd:ef\n4096x8192x16384\n"
    )
    assert redaction.text(text) == text
    # The common names of containers are no secret.
    assert (
        Redaction(["localhost"], ["root"], ["/worker", "/"], [""]).text("/worker/x: root at localhost")
        == "/worker/x: root at localhost"
    )


@pytest.mark.parametrize(
    "name", ["bert-small_h100_inference", "vit-b16_mi300x_inference", "toy_mi250_training", "event_sync_multi_stream"]
)
def test_recorded_traces_stay_as_they_are(redaction, name):
    text = gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()).decode()
    assert redaction.json(text) == text
