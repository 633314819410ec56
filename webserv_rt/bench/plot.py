"""Draw a benchmark's figures."""

from __future__ import annotations

from pathlib import Path

from webserv_rt.bench.figures import Result
from webserv_rt.errors import WebservError


def plot_result(result: Result, path: Path) -> None:
    """Draw p50 and p95 of engine, ready and the peers as bars; needs matplotlib (the extra `plot`)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise WebservError("--plot needs matplotlib: pip install 'webserv-rt[plot]'") from None
    bars = {"engine": result["engine_ms"], "ready": result["ready_ms"]}
    bars |= {f"peer: {name}": peer["ready_ms"] for name, peer in result["peers"].items()}
    figure = Figure(figsize=(8, 1.2 + 0.6 * len(bars)), layout="constrained")
    axes = figure.subplots()
    positions = range(len(bars))
    axes.barh([p - 0.2 for p in positions], [figures["p50"] for figures in bars.values()], 0.4, label="p50")
    axes.barh([p + 0.2 for p in positions], [figures["p95"] for figures in bars.values()], 0.4, label="p95")
    axes.set_yticks(list(positions), list(bars))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title(f"{result['site']}, {result['strategy']}, {result['rounds']} rounds")
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise WebservError(f"cannot draw to {path}: {error}") from error
