"""``rooflines predict``: bounds and predictions of a model on devices where it is not run."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from rooflines.cli.app import app
from rooflines.cli.options import At, Format, Formulas, Model, Output, Target, only_model, option, options_of
from rooflines.cli.output import check_at, destination, json_of, progress_bar
from rooflines.profiler.options import HOW_GROUP, OUTPUT, PREDICTED_LISTS, PointOptions, Precision
from rooflines.profiler.record.torch_logs import quiet_profiler

_WHERE = "Devices"


@app.command()
@options_of(
    PointOptions,
    "mode",
    *PREDICTED_LISTS,
    "image_size",
    "new_tokens",
    "kv_cache",
    "compile",
    "quantize",
    "channels_last",
    "optimizer",
    "checkpointing",
    lists=PREDICTED_LISTS,
)
@quiet_profiler()
def predict(
    target: Target = None,
    model: Model = None,
    *,
    device: Annotated[
        list[str] | None,
        option(
            "Device of a data sheet (rooflines devices), a JSON file with ceilings, or this: "
            "this machine (repeatable).",
            group=_WHERE,
            metavar="NAME",
        ),
    ] = None,
    like: Annotated[
        list[str] | None,
        option(
            "Run or trace whose efficiencies give predictions with intervals (repeatable); "
            "public: published times of kernels and networks on GPUs.",
            group=_WHERE,
            metavar="RUN",
        ),
    ] = None,
    precision: Annotated[
        Literal[Precision, "fp8", "fp4"],
        option(
            "Precision of the network; fp8 or fp4 (generate): of weights and products, as in servers.",
            group=HOW_GROUP,
        ),
    ] = "fp32",
    kv_cache_dtype: Annotated[
        Literal["auto", "fp8"],
        option("Precision of the KV cache (generate); auto: that of the network.", group=HOW_GROUP),
    ] = "auto",
    target_ttft: Annotated[
        float | None,
        option("Time to the first token to reach (generate), in s.", group=_WHERE, metavar="S"),
    ] = None,
    target_itl: Annotated[
        float | None, option("Time of each other token to reach, in s.", group=_WHERE, metavar="S")
    ] = None,
    target_rate: Annotated[
        float | None,
        option("Tokens per second of all sequences in decode to reach.", group=_WHERE, metavar="N"),
    ] = None,
    price: Annotated[
        list[str] | None,
        option("Price of a device per hour (repeatable).", group=_WHERE, metavar="NAME=PRICE"),
    ] = None,
    power: Annotated[
        list[str] | None,
        option(
            "Power of a device in W (repeatable).",
            group=_WHERE,
            metavar="NAME=W",
            show_default="limit of the data sheet",
        ),
    ] = None,
    layout: Annotated[
        list[str] | None,
        option(
            "Parallel layout of a generation: tp=4,pp=2 (tensor, pipeline, data dp, expert ep), of a "
            "training step: dp=8, zero1=8, zero2=8, fsdp=8, with accumulated batches fsdp=8,accumulate=4; or "
            "a number of devices for all usual ones (repeatable).",
            group=_WHERE,
            metavar="LAYOUT",
        ),
    ] = None,
    rows: Annotated[int, option("Maximum number of operators.", group=OUTPUT, min=1)] = 12,
    format: Format = None,
    at: At = None,
    output: Output = None,
    formulas: Formulas = None,
    **options: Any,
) -> None:
    """Predict a model on devices without running it: the least time of a step, what bounds it, and the memory
    it needs.

    [bold]rooflines predict --model resnet50 --batch-size 1,64 --precision bf16 --device "NVIDIA H200"
    --device "RTX 4090"[/bold]

    [bold]rooflines predict --model hf:path/to/config.json --mode generate --precision bf16 --device "MI300X"
    --like public[/bold]
    """
    name = only_model(target, model, 'rooflines predict --model resnet50 --device "NVIDIA H200"')
    check_at(at, format, output)
    place = destination(format, output)
    from rooflines.pipeline import default_command
    from rooflines.pipeline.predicted_devices import numbers_by_name
    from rooflines.pipeline.predicting import predict
    from rooflines.reports.page.predict import forecast_csv, page
    from rooflines.sweeps.points import parse_values

    lists = {
        name: parse_values(name, text) for name in PREDICTED_LISTS if (text := options.pop(name)) is not None
    }
    with progress_bar(not sys.stderr.isatty()) as progress:
        forecast = predict(
            name,
            devices=device or [],
            like=like or [],
            layouts=layout or [],
            precision=precision,
            kv_cache_dtype=kv_cache_dtype,
            target_ttft_s=target_ttft,
            target_itl_s=target_itl,
            target_rate=target_rate,
            command=default_command(),
            price=numbers_by_name("price", price or []),
            power=numbers_by_name("power", power or []),
            progress=progress,
            **options,
            **lists,
        )
    own = {"json": lambda: json_of(forecast, at), "csv": lambda: forecast_csv(forecast)}
    place.show(lambda: page(forecast, rows), "predict", own)
