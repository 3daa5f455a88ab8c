"""How long ``rooflines --help`` and ``rooflines analyze`` of a small trace take, and what each imports of torch.

Each is run in turn with ``python -c pass`` (A B C A B C ...), because a short command is mostly the interpreter's own start; the median
ratio within a round is what the package adds. ``--before DIR`` runs the same commands of another checkout in the same rounds, so that
two commits are compared on the same machine in the same minutes. Writes ``results/startup.json`` with the machine's facts.

    python benchmarks/startup.py [--rounds 21] [--before DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HELP_LIMIT_S = 0.4
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "startup.json"
TRACE = HERE.parent / "tests" / "data" / "traces" / "cpu_only.json.gz"
EMPTY = ["-c", "pass"]
COMMANDS = {"help": ["--help"], "analyze": ["analyze", str(TRACE)]}
LOADED = """
import json, sys
import rooflines.cli
try:
    rooflines.cli.main()
except SystemExit:
    pass
print("\\n" + json.dumps({"torch": "torch" in sys.modules, "modules": len(sys.modules)}))
"""


# Compiled modules are kept, as on any machine where a command runs a second time, but outside the checkouts.
COMPILED = tempfile.TemporaryDirectory()


def run(arguments: list[str], checkout: Path) -> str:
    """Standard output of Python with ``arguments`` and the package of ``checkout``; the command must succeed."""
    command = [sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONPYCACHEPREFIX": COMPILED.name, "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=checkout, env=environment).stdout


def wall_s(arguments: list[str], checkout: Path) -> float:
    """Seconds from start to exit."""
    begun = time.perf_counter()
    run(arguments, checkout)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="number of rounds")
    parser.add_argument("--before", type=Path, help="checkout of another commit to compare with")
    arguments = parser.parse_args()
    checkouts = {"now": HERE.parent} | ({"before": arguments.before.resolve()} if arguments.before else {})
    sides = {("python", "now"): EMPTY}
    sides |= {(name, side): ["-m", "rooflines", *command] for name, command in COMMANDS.items() for side in checkouts}
    for (_, side), command in sides.items():
        wall_s(command, checkouts[side])  # the first run compiles and fills the page cache
    times = [{key: wall_s(command, checkouts[key[1]]) for key, command in sides.items()} for _ in range(arguments.rounds)]

    def median_s(name: str, side: str = "now") -> float:
        return statistics.median(row[name, side] for row in times)

    def ratio(name: str, to: tuple[str, str]) -> float:
        return statistics.median(row[name, "now"] / row[to] for row in times)

    from rooflines.profiler.machine.environment import collect_environment
    from rooflines.serial import to_plain

    result = {"benchmark": "startup", "rounds": arguments.rounds, "python_pass_median_s": round(median_s("python"), 4)}
    failed = []
    print(f"python -c pass     {median_s('python') * 1e3:4.0f} ms (medians of {arguments.rounds} rounds)")
    for name, command in COMMANDS.items():
        loaded = json.loads(run(["-c", LOADED, *command], HERE.parent).splitlines()[-1])
        result[name] = {
            "median_s": round(median_s(name), 4),
            "ratio_to_python": round(ratio(name, ("python", "now")), 2),
            "imports_torch": loaded["torch"],
            "modules_loaded": loaded["modules"],
        }
        line = f"rooflines {name:<8} {median_s(name) * 1e3:4.0f} ms, {'imports' if loaded['torch'] else 'does not import'} torch"
        if "before" in checkouts:
            result[name] |= {
                "before_median_s": round(median_s(name, "before"), 4),
                "ratio_to_before": round(ratio(name, (name, "before")), 3),
            }
            line += f"; before {median_s(name, 'before') * 1e3:.0f} ms, ratio {ratio(name, (name, 'before')):.2f}"
        print(line)
        if loaded["torch"]:
            failed.append(f"rooflines {name} imports torch")
    if median_s("help") > HELP_LIMIT_S:
        failed.append(f"rooflines --help takes longer than {HELP_LIMIT_S * 1e3:.0f} ms")
    result["environment"] = {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
