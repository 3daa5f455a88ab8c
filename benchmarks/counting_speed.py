"""How long counting takes: ResNet-50 beside torch's FlopCounterMode on fake tensors, and two transformers that no laptop could run.

The first comparison is paired: both sides in turn in one process, on networks built anew each time; the ratio's median and a bootstrap
interval. The others are one fresh process each, imports apart. Writes ``benchmarks/results/counting_speed.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "counting_speed.json"
LIMIT_RATIO, LIMIT_STEP_S = 1.5, 10.0
GPT2_XL = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}
LLAMA_70B = {
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_hidden_layers": 80, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip
_COUNT = """
import json, sys, time
import torch, transformers, torch._dynamo
from rooflines.profiler.options import Options
from rooflines.roofline.dry_run.count import count_network
started = time.perf_counter()
workload, count = count_network("hf:" + sys.argv[1], Options(mode=sys.argv[2], sequence_length=1024, device="cpu"))
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "flops": count.flops, "coverage": count.coverage, "tensors": count.tensors}))
"""


def resnet50() -> tuple[object, object, object]:
    """A fake ResNet-50, its input and their mode."""
    import torch
    import torchvision

    from rooflines.profiler.calls.fakes import fake_tensors

    mode = fake_tensors()
    with mode:
        return torchvision.models.resnet50().eval(), torch.randn(1, 3, 224, 224), mode


def ours() -> tuple[float, int]:
    """Seconds of ``rooflines.count`` and the matrix FLOPs that it finds."""
    import torch

    import rooflines

    network, image, _ = resnet50()
    with torch.no_grad():
        started = time.perf_counter()
        found = rooflines.count(network, image).matrix_flops
        return time.perf_counter() - started, found


def theirs() -> tuple[float, int]:
    """The same of torch's FlopCounterMode."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    network, image, mode = resnet50()
    with torch.no_grad():
        started = time.perf_counter()
        with mode, FlopCounterMode(display=False) as counter:
            network(image)
        return time.perf_counter() - started, counter.get_total_flops()


def paired(rounds: int) -> dict[str, object]:
    """Both in turn; the first round, which fills torch's caches, is reported apart."""
    import numpy as np

    times = [(ours(), theirs()) for _ in range(rounds + 1)]
    assert len({flops for pair in times for _, flops in pair}) == 1, "the counters disagree"
    ratios = np.array([mine[0] / other[0] for mine, other in times[1:]])
    low, high = np.percentile(np.median(np.random.default_rng(0).choice(ratios, (2000, len(ratios))), axis=1), (2.5, 97.5))
    return {
        "rounds": rounds,
        "ours_s": float(np.median([mine[0] for mine, _ in times[1:]])),
        "flop_counter_mode_s": float(np.median([other[0] for _, other in times[1:]])),
        "ratio": float(np.median(ratios)),
        "ratio_ci95": [float(low), float(high)],
        "first_round_s": {"ours": times[0][0][0], "flop_counter_mode": times[0][1][0]},
        "limit_ratio": LIMIT_RATIO,
    }


def alone(config: dict[str, object], mode: str) -> dict[str, object]:
    """One count of a transformer given by its configuration, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        done = subprocess.run([sys.executable, "-c", _COUNT, folder, mode], capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, print, write."""
    from rooflines import serial
    from rooflines.profiler.machine.environment import collect_environment

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41, help="pairs (default 41)")
    rounds = parser.parse_args().rounds
    results = {
        "resnet50": paired(rounds),
        "gpt2_xl_training_step": {**alone(GPT2_XL, "training"), "limit_s": LIMIT_STEP_S},
        "llama_70b_prefill": alone(LLAMA_70B, "inference"),
        "environment": serial.to_plain(collect_environment("cpu")),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    pair = results["resnet50"]
    print(f"rooflines.count(resnet50)      {pair['ours_s'] * 1e3:.1f} ms")
    print(f"FlopCounterMode                {pair['flop_counter_mode_s'] * 1e3:.1f} ms")
    low, high = pair["ratio_ci95"]
    print(f"ratio                          {pair['ratio']:.2f} ({low:.2f} to {high:.2f}; the limit is {LIMIT_RATIO})")
    print(f"GPT-2 XL, training step        {results['gpt2_xl_training_step']['seconds']:.1f} s (the limit is {LIMIT_STEP_S:.0f} s)")
    print(f"Llama 70B, 1024 tokens         {results['llama_70b_prefill']['seconds']:.1f} s")
    print(f"written                        {RESULTS}")


if __name__ == "__main__":
    main()
