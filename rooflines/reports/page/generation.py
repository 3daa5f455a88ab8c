"""The section of steps that generate text: when tokens are ready, the phases, what decode must read, and what
fits into memory."""

from __future__ import annotations

from rooflines.reports.charts.curves import Curves, CurveSeries
from rooflines.reports.charts.palette import SERIES_COLORS
from rooflines.reports.document import Figure, Paragraph, Section, said, section
from rooflines.reports.page.serving import parts_table, reads_sentence, steps_table
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.served_steps import Generation, TokenLatency
from rooflines.units import binary_bytes, counted, interval, plus_minus, seconds, si, significant

_METHOD = (
    "Figures are per call of a phase: prefill computes the prompts and gives the first token, a "
    "decode step computes one token of each"
    " sequence. A call lasts from the end of the one before. The bound is the larger one of two: "
    "the sum over its operators, and of"
    " decode the time to read weights and KV cache from memory."
)


def generation_section(analysis: Analysis) -> Section | None:
    """The section; None for steps that do not generate text."""
    found = analysis.generation
    if not found:
        return None
    latency = found.latency
    missing = (
        "" if latency else "Token times are not available: no generation was timed with the profiler off."
    )
    return section(
        "generation",
        "Generation",
        steps_table(found.phases, "generation", analysis.basis.steps),
        *said([*generation_sentences(analysis), missing]),
        _figure(latency) if latency and len(latency.context) > 1 else None,
        parts_table(found.phases, "generation"),
        Paragraph(_METHOD, "note") if found.phases else None,
        remark=(
            f"{counted(found.requests, 'sequence')} of {found.prompt_length:,} + {found.new_tokens:,} "
            "tokens a step"
        ),
    )


def generation_sentences(analysis: Analysis) -> list[str]:
    """Latencies, rates, what decode must read, and memory, as far as they are known."""
    found = analysis.generation
    if not found:
        return []
    texts = _latency(found.latency) if found.latency else []
    rates = ((found.tokens_per_s, "tokens/s"), (found.tokens_per_j, "tokens/J"))
    if told := ", ".join(f"{significant(rate)} {unit}" for rate, unit in rates if rate):
        texts.append(f"New tokens over whole steps: {told}.")
    decode = found.of("decode")
    return [*texts, *([reads_sentence(decode)] if decode else []), *_memory(found, analysis)]


def _latency(latency: TokenLatency) -> list[str]:
    error = f", {plus_minus(latency.ttft_s, *latency.ttft_ci95_s, seconds)}" if latency.ttft_ci95_s else ""
    first = (
        f"Time to first token: {seconds(latency.ttft_s)} (median of "
        f"{counted(latency.generations, 'generation')}{error})."
    )
    if latency.itl_median_s is None:
        return [first]
    tail = ((90, latency.itl_p90_s), (99, latency.itl_p99_s))
    below = "".join(f", {share} % below {seconds(value)}" for share, value in tail if value is not None)
    more = f"Inter-token latency: median {seconds(latency.itl_median_s)}{below} ({latency.gaps:,} gaps)."
    if latency.growth_s_per_token is None or not latency.growth_ci95_s:
        return [first, more]
    low, high = latency.growth_ci95_s
    ends = interval(1e6 * low, 1e6 * high)
    return [
        first,
        more,
        f"A token of context adds {significant(1e6 * latency.growth_s_per_token)} µs (95 % "
        f"interval {ends} µs).",
    ]


def _memory(found: Generation, analysis: Analysis) -> list[str]:
    sizes, fits = found.sizes, found.fits
    if not sizes:
        return []
    texts = [f"{si(sizes.parameters, '')} parameters take {si(sizes.parameter_bytes, 'B')}."]
    if sizes.kv_bytes_per_token is not None and sizes.kv_bytes is not None:
        per, end = si(sizes.kv_bytes_per_token, "B"), si(sizes.kv_bytes, "B")
        texts = [f"{texts[0].rstrip('.')}, the KV cache {per} per token of a sequence and {end} at the end."]
    if fits:
        where = "main memory" if analysis.environment.device == "cpu" else "device memory"
        sequences, each = counted(fits.requests, "such sequence"), " each" if found.requests > 1 else ""
        most = ", the most that the model allows" if fits.context == sizes.longest_context else ""
        texts.append(
            f"By weights and KV cache alone, {binary_bytes(fits.memory_bytes)} of {where} hold "
            f"{sequences}, or a context of "
            f"{fits.context:,} tokens{each}{most}."
        )
    return texts


def _figure(latency: TokenLatency) -> Figure:
    series = CurveSeries(
        name="median",
        x=tuple(map(float, latency.context)),
        y=latency.median_s,
        low=latency.p25_s,
        high=latency.p75_s,
        color=SERIES_COLORS[0],
    )
    drawing = Curves(x_title="tokens of context", y_title="inter-token latency, s", series=(series,))
    caption = "Inter-token latency over the context: median and quartiles of the timed generations."
    return Figure(name="token-latency", drawing=drawing, caption=caption)
