"""The options of ``profile``: the workload's own, how long it is measured, what it is compared with, and what
is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.options import HOW_GROUP, MEASURE_GROUP, OUTPUT, Option, OptionValue, PointOptions
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Settings
from rooflines.reports.render.formats import FORMATS as ALL_FORMATS
from rooflines.reports.render.formats import usable

# What is written of a run unless something else is asked for.
FORMATS = usable(("html", "pdf", "json", "csv", "tensorboard"))
CEILINGS_HELP = "Ceilings to use: `measured`, `spec`, a device name or a JSON file."
# What a script sets itself. Batch size and precision only label its run.
NOT_FOR_SCRIPTS = (
    "mode",
    "image_size",
    "sequence_length",
    "channels_last",
    "compile",
    "quantize",
    "optimizer",
    "checkpointing",
    "cuda_graphs",
    "parallel",
    "seed",
    "data",
    "data_dir",
    "data_workers",
    "pin_memory",
    "trace",
)
# What a repeated run does not take over.
NOT_REPEATED = ("to_end", "trace", "remeasure", "output", "formats", "progress")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(PointOptions):
    """The keyword arguments of ``profile``, and the options of ``rooflines profile``.

    ``progress`` is called with each stage. The other fields have their description in their type.
    """

    to_end: Annotated[
        bool, Option("Run the script to its end instead of stopping after enough steps.", HOW_GROUP)
    ] = False
    steps: Annotated[
        int | None,
        Option("Number of timed steps.", MEASURE_GROUP, "about 5 s, 5 to 100 steps or half a second"),
    ] = None
    warmup: Annotated[
        int | None, Option("Number of warm-up steps.", MEASURE_GROUP, "until step times settle")
    ] = None
    wait_quiet: Annotated[
        bool,
        Option("Wait until other programs pause, and repeat the steps they disturb (CPU).", MEASURE_GROUP),
    ] = False
    budget: Annotated[
        float,
        Option(
            "Seconds that the recorded steps may take, or five steps if these take longer.", MEASURE_GROUP
        ),
    ] = Settings().budget_s
    trace: Annotated[
        bool, Option("Trace the operators of some steps after the timed ones.", MEASURE_GROUP)
    ] = True
    ceilings: Annotated[str, Option(CEILINGS_HELP, MEASURE_GROUP)] = "measured"
    remeasure: Annotated[
        bool, Option("Measure the ceilings again instead of using the cached ones.", MEASURE_GROUP)
    ] = False
    output: Annotated[
        Path | str | None, Option("Run directory to create.", OUTPUT, "runs/NAME-MODE-TIME")
    ] = None
    formats: Annotated[
        Sequence[str], Option(f"Reports to write: {', '.join(ALL_FORMATS)}; or all.", OUTPUT)
    ] = FORMATS
    progress: Progress | None = None

    def check(self) -> None:
        """Raise UsageError for what no workload accepts on any machine."""
        super().check()
        for name, least in (("steps", 1), ("warmup", 0), ("budget", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(
                    f"{arg(name)} must be at least {least}, got {value}.",
                    hint="Omit it to choose from the step times.",
                )

    def changed(self) -> dict[str, OptionValue]:
        """Return the options that are not their defaults, without those of what is written and shown."""
        return {
            field.name: value if isinstance(value, OptionValue) else str(value)
            for field in dataclasses.fields(self)
            if field.name not in NOT_REPEATED and (value := getattr(self, field.name)) != field.default
        }

    def refuse(self, names: Sequence[str], what: str, hint: str) -> None:
        """Raise UsageError for an option in ``names`` that is not its default: it does not apply to
        ``what``."""
        for field in dataclasses.fields(self):
            if field.name in names and getattr(self, field.name) != field.default:
                raise UsageError(f"{arg(field.name)} does not apply to {what}.", hint=hint)
