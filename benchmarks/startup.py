"""How long ``rooflines --help`` takes and whether it loads torch.

Run in turn with ``python -c pass`` (A B A B ...), because both are mostly the interpreter's own start; the median ratio of the pairs is
what the package adds. Prints both answers and writes ``results/startup.json`` with the machine's facts.

    python benchmarks/startup.py [--pairs 21]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 0.4
RESULTS = Path(__file__).parent / "results" / "startup.json"
EMPTY = [sys.executable, "-c", "pass"]
HELP = [sys.executable, "-m", "rooflines", "--help"]
LOADED = """
import json, sys
sys.argv = ["rooflines", "--help"]
import rooflines.cli
try:
    rooflines.cli.main()
except SystemExit:
    pass
print("\\n" + json.dumps({"torch": "torch" in sys.modules, "modules": len(sys.modules)}))
"""


def wall_s(command: list[str]) -> float:
    """Seconds from start to exit of ``command``, which must succeed."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=21, help="how often both are run")
    pairs = parser.parse_args().pairs
    for command in (EMPTY, HELP):
        wall_s(command)  # the first run compiles and fills the page cache
    times = [(wall_s(EMPTY), wall_s(HELP)) for _ in range(pairs)]
    empty, help_ = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = sorted(b / a for a, b in times)
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )

    from rooflines.profiler.environment import collect_environment
    from rooflines.serial import to_plain

    result = {
        "benchmark": "startup",
        "command": "rooflines --help",
        "pairs": pairs,
        "python_pass_median_s": round(empty, 4),
        "help_median_s": round(help_, 4),
        "help_p90_s": round(sorted(b for _, b in times)[int(0.9 * (pairs - 1))], 4),
        "ratio_median": round(statistics.median(ratios), 2),
        "limit_s": LIMIT_S,
        "imports_torch": loaded["torch"],
        "modules_loaded": loaded["modules"],
        "environment": {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"rooflines --help   {help_ * 1e3:.0f} ms (median of {pairs}; the limit is {LIMIT_S * 1e3:.0f} ms)")
    print(f"python -c pass     {empty * 1e3:.0f} ms, ratio {statistics.median(ratios):.1f}")
    print(f"imports torch      {'yes' if loaded['torch'] else 'no'}")
    if loaded["torch"] or help_ > LIMIT_S:
        sys.exit(1)


if __name__ == "__main__":
    main()
