# ruff: noqa: T201 (a command line prints)
"""``rooflines count``: count FLOPs and bytes without running the model."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from rooflines.cli.app import app
from rooflines.cli.options import By, Format, Formulas, Model, Output, Target, only_model, option, options_of
from rooflines.cli.output import destination
from rooflines.errors import UsageError
from rooflines.profiler.options import OUTPUT, PointOptions
from rooflines.profiler.record.torch_logs import quiet_profiler


@app.command()
@options_of(
    PointOptions,
    "mode",
    "batch_size",
    "image_size",
    "sequence_length",
    "prompt_length",
    "new_tokens",
    "kv_cache",
    "precision",
    "channels_last",
    "quantize",
)
@quiet_profiler()
def count(
    target: Target = None,
    model: Model = None,
    *,
    by: Annotated[By, option("Group rows by operator or module.", group=OUTPUT)] = "operator",
    format: Format = None,
    rows: Annotated[int, option("Maximum number of rows.", group=OUTPUT, min=1)] = 20,
    against: Annotated[
        str,
        option(
            "Compare with other counters and explain the differences. Comma-separated: torch, "
            "fvcore, profiler.",
            group=OUTPUT,
        ),
    ] = "",
    memory: Annotated[
        bool, option("Also show the peak memory of a step by category.", "--memory", group=OUTPUT)
    ] = False,
    output: Output = None,
    formulas: Formulas = None,
    **options: Any,
) -> None:
    """Count FLOPs and bytes of a model per operator, without data and without running it.

    [bold]rooflines count --model resnet50[/bold]

    [bold]rooflines count --model hf:path/to/config.json --mode training --by module[/bold]

    [bold]rooflines count --model hf:path/to/config.json --mode generate --prompt-length 1024[/bold]
    """
    from rooflines import serial
    from rooflines.device_specs.measure_torch import emulation
    from rooflines.pipeline import default_command
    from rooflines.profiler.options import find_device
    from rooflines.reports.page.count import count_csv, generation_page, page
    from rooflines.roofline.dry_run.other_counters import count_against

    name = only_model(target, model, "rooflines count --model resnet50")
    place = destination(format, output)
    if memory and place.format == "csv":
        raise UsageError("--memory cannot be written as CSV.", hint="Use --format table or json.")
    of = PointOptions(**options, device="cpu")
    if "16" in of.precision and (told := emulation(find_device("auto"), of.precision)) is not None:
        print(f"rooflines: {told}", file=sys.stderr)
    if of.mode == "generate":
        from rooflines.roofline.dry_run.phases import count_generation

        if against or (place.format == "csv" and by == "module"):
            refused = "--against" if against else "--by module as CSV"
            raise UsageError(f"{refused} does not apply to --mode generate.", hint="Use --mode inference.")
        generation = count_generation(name, of)
        operators = [row for phase in generation.phases for row in phase.count.operators]
        own = {"json": lambda: serial.to_json(generation.to_dict()), "csv": lambda: count_csv(operators, by)}
        place.show(
            lambda: generation_page(generation, by, rows, default_command()),
            "count",
            own,
        )
        return
    workload, counted, others = count_against(name, of, against.split(","), memory=memory)
    beside = {"against": others} if others else {}
    own = {
        "json": lambda: serial.to_json({"workload": workload, **counted.to_dict(), **beside}),
        "csv": lambda: count_csv(counted.operators if by == "operator" else counted.modules, by),
    }
    place.show(
        lambda: page(counted, workload, by, rows, others, default_command()),
        "count",
        own,
    )
