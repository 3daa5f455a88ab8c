"""A run's figures, page and operators in the experiment tracker of the training: Weights & Biases, MLflow or
TensorBoard."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from rooflines.errors import UsageError
from rooflines.pipeline import analyze
from rooflines.profiler.records import Run
from rooflines.reports.page import measured
from rooflines.reports.page.run import page as run_page
from rooflines.reports.render import html, markdown
from rooflines.roofline.analysis import Analysis

# The operators that the table has, by what they could save.
_ROWS = 100
_COLUMNS = (
    "name",
    "module",
    "phase",
    "shapes",
    "bound",
    "time_s",
    "flops",
    "bytes",
    "lower_bound_s",
    "efficiency",
    "headroom_s",
)


def log(run: Run | Analysis, tracker: Any = None) -> list[str]:
    """Send the scalars of ``run`` (``rooflines/median_step_s``, ...), its page and its operators to a
    tracker; returns where they went.

    ``tracker`` is a run of ``wandb``, the module ``mlflow``, or a ``SummaryWriter``; without it every active
    run of wandb and MLflow in this process. Nothing is imported that the program has not imported itself.
    Raises UsageError if there is no tracker.
    """
    analysis = run if isinstance(run, Analysis) else analyze(run)
    targets = [tracker] if tracker is not None else _active()
    if not targets:
        raise UsageError(
            "no run of Weights & Biases or MLflow is active.", hint="Give one: rooflines.log(run, tracker)."
        )
    found = run_page(analysis)
    rows = sorted(analysis.operators, key=lambda row: -(row.headroom_s or 0.0))[:_ROWS]
    scalars = {f"rooflines/{name}": value for name, value in measured.of_run(analysis, ()).summary.items()}
    table = [[getattr(row, name) for name in _COLUMNS] for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        page = html.write(found, Path(folder) / "rooflines.html")
        return [_send(target, scalars, table, page, markdown.render(found)) for target in targets]


def _active() -> list[Any]:
    """The runs of the trackers that this process has begun."""
    wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
    found = [wandb.run] if wandb is not None and getattr(wandb, "run", None) is not None else []
    return found + ([mlflow] if mlflow is not None and mlflow.active_run() is not None else [])


def _send(tracker: Any, scalars: dict[str, float], rows: list[list[Any]], page: Path, text: str) -> str:
    home = (tracker.__name__ if isinstance(tracker, type(sys)) else type(tracker).__module__).partition(".")[
        0
    ]
    if home == "wandb":
        import wandb

        tracker.log(
            {
                **scalars,
                "rooflines/operators": wandb.Table(columns=list(_COLUMNS), data=rows),
                "rooflines/page": wandb.Html(page.read_text(encoding="utf-8")),
            }
        )
    elif home == "mlflow":
        tracker.log_metrics({name.replace("/", "."): value for name, value in scalars.items()})
        tracker.log_artifact(str(page))
        tracker.log_dict({"columns": list(_COLUMNS), "data": rows}, "rooflines_operators.json")
    elif hasattr(tracker, "add_scalar"):
        for name, value in scalars.items():
            tracker.add_scalar(name, value)
        tracker.add_text("rooflines/page", text)
        home = "tensorboard"
    else:
        raise UsageError(
            f"a {type(tracker).__name__} is no tracker.",
            hint="Give a run of wandb, the module mlflow or a SummaryWriter.",
        )
    return home
