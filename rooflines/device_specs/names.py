"""Names of drivers, reduced to the parts that distinguish devices.

torch, nvidia-smi, lspci, rocminfo, lscpu and sysctl print the same device in different words: "NVIDIA
A100-SXM4-40GB", "A100-SXM4-40GB", "3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)".
``parse`` takes off, in this order:

1. case, "(R)", "(TM)" and their signs, underscores, runs of white space;
2. the field's name ("Model name:", "Marketing Name:", "GPU 0:"), a UUID, lspci's slot, class, codes and
   revision; of an lspci line the name in brackets counts, which is the marketing name;
3. a MIG suffix, which is kept apart as ``mig``: it names a slice of the device;
4. the vendor, kept apart as ``vendor``, and in front of an NVIDIA name the word "Tesla", which newer drivers
   leave out;
5. of CPUs: "13th Gen" in front, "@ 2.30GHz", "CPU", "Processor", "with Radeon Graphics", and "64-Core", kept
   apart as ``cores``.

Hyphens become spaces. What is left must be equal, whole: no rule matches part of a name, so an "L40S" is
never an "L4", a "GRID A100-10C" (a share of a card) never an "A100", and a "Ti", "SUPER", "D", "Max-Q" or
"Laptop GPU" never the card without. The size of the memory at the end of a name is part of it where a device
is known so ("A100-SXM4-40GB"); elsewhere ``without_memory`` takes it off, and the caller must find the device
to have just that.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)
_FIELD = re.compile(
    r"^(?:gpu\s?\[?\d+\]?|model name|product name|marketing name|card (?:series|model)|chipset "
    r"model|machdep\.cpu\.brand string)\s*:\s*"
)
_UUID = re.compile(r"\s*\(uuid: [^)]*\)$")
_PCI = re.compile(
    r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f] |"
    r"^(?:vga compatible controller|3d controller|display controller|processing accelerators)(?: "
    r"\[[0-9a-f]{4}\])?: |"
    r" \[[0-9a-f]{4}:[0-9a-f]{4}\]| \(rev [0-9a-f]{2}\)$"
)
_PCI_VENDOR = re.compile(
    r"^(nvidia corporation|advanced micro devices, inc\. \[amd(?:/ati)?\]|intel corporation) "
)
_BRACKETS = re.compile(r"^[^\[\]]*\[([^\[\]]+)\]$")
_MIG = re.compile(r"^(.+?) mig (?:(\d+)c\.)?(\d+)g\.(\d+)gb(?:\+[a-z.]+)?$")
VENDORS = ("nvidia", "amd", "intel", "apple")
_GENERATION = re.compile(r"^\d+(?:st|nd|rd|th) gen ")
_CORES = re.compile(r"\b(\d+)[ -]cores?\b")
_CPU_WORDS = re.compile(
    r"@ ?[\d.]+ ?[gm]hz\b|\b(?:with|w/) radeon(?: [\w ]*)?graphics\b|\bcpu\b|\bprocessor\b", re.IGNORECASE
)
_MEMORY = re.compile(r"^(.+?) (\d+) ?g(?:i?b)?$")


class Mig(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of an NVIDIA GPU from its name: ``3g.20gb`` has three compute slices and 20 GB, ``2c.3g.20gb``
    two of them."""

    compute_slices: int
    memory_gb: int
    compute_instance_slices: int | None = None

    @property
    def profile(self) -> str:
        part = f"{self.compute_instance_slices}c." if self.compute_instance_slices else ""
        return f"{part}{self.compute_slices}g.{self.memory_gb}gb"

    def memory_slices(self, capacity_gb: float) -> int | None:
        """The number of eighths of a memory of ``capacity_gb``; None if its size is not a whole number of
        eighths.

        NVIDIA rounds the size: 12 GB is an eighth of 94 GB, and 71 GB are four eighths of 141 GB.
        """
        slices = round(8 * self.memory_gb / capacity_gb)
        return slices if 1 <= slices <= 8 and abs(slices * capacity_gb / 8 - self.memory_gb) < 1 else None


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """A device's name in parts: ``text`` must be equal, the rest are further facts in the name."""

    text: str
    vendor: str = ""
    cores: int | None = None
    mig: Mig | None = None


def parse(printed: str) -> Printed:
    """The parts of a name as a driver prints it; ``text`` is empty where nothing is left."""
    text = _spaces(unicodedata.normalize("NFKC", _MARKS.sub(" ", printed)).casefold().replace("_", " "))
    for _ in range(3):  # rocm-smi prints "GPU[0] : Card series: ..."
        text = _FIELD.sub("", text)
    text = _UUID.sub("", text)
    for _ in range(2):  # the slot, then the class
        text = _spaces(_PCI.sub("", text))
    vendor = ""
    if match := _PCI_VENDOR.match(text):
        vendor = match[1].split()[0].replace("advanced", "amd")
        text = text[match.end() :]
        if inner := _BRACKETS.match(text):
            text = inner[1].strip()
    mig = None
    if sliced := _MIG.match(text):
        text, part, compute, memory = sliced[1], sliced[2], int(sliced[3]), int(sliced[4])
        if compute and memory:
            mig = Mig(
                compute_slices=compute, memory_gb=memory, compute_instance_slices=int(part) if part else None
            )
    text = _GENERATION.sub("", text)
    for word in VENDORS:
        if text == word or text.startswith(f"{word} "):
            vendor = word
            text = text if word == "apple" else text[len(word) :].lstrip()
    if vendor in ("", "nvidia"):
        text = text.removeprefix("tesla ")
    cores = None
    if match := _CORES.search(text):
        cores = int(match[1])
        text = text.replace(match[0], " ")
    text = _spaces(_CPU_WORDS.sub(" ", text).replace("-", " "))
    return Printed(text=text, vendor=vendor, cores=cores, mig=mig)


def without_memory(text: str) -> tuple[str, int] | None:
    """A parsed name without the size of the memory (GB) at its end, and that size; None where it does not end
    so."""
    match = _MEMORY.match(text)
    return (match[1], int(match[2])) if match else None


def _spaces(text: str) -> str:
    return " ".join(text.split())
