"""A page on Dask's dashboard, and a pane of its JupyterLab extension: loss, rates and communication of training runs.

The dashboard needs Bokeh (``pip install 'futurex[dashboard]'``), on the scheduler's machine only.
"""

from __future__ import annotations

from html import escape
from typing import Any

from distributed import Scheduler

from futurex.runtime.cluster.watching import TrainingPlugin, Watched

PAGE = "/individual-futurex-training"
REFRESH_MILLISECONDS = 500
_CURVES = (("loss", "loss"), ("steps_per_second", "steps/s"), ("samples_per_second", "samples/s"))
_COLUMNS = ("step", *(name for name, _ in _CURVES))
_SHARES = ("rank", "exposed", "hidden", "megabytes_per_second")


def register() -> None:
    """Have the dashboards of schedulers that start later in this process serve the page, if Bokeh is installed."""
    try:
        from distributed.dashboard.scheduler import applications
    except ImportError:
        return
    applications[PAGE] = page


def add_to(scheduler: Scheduler) -> None:
    """Serve the page on the dashboard of a scheduler that runs, unless it does so already or has none."""
    if not _dashboards(scheduler) or served(scheduler):
        return
    from distributed.dashboard.core import BokehApplication

    own = BokehApplication({PAGE: page}, scheduler)
    scheduler.http_application.add_application(own)
    own.initialize(scheduler.io_loop)
    own.start()


def served(dask_scheduler: Scheduler) -> bool:
    """Is the page there?"""
    return any(PAGE in each.app_paths for each in _dashboards(dask_scheduler))


def _dashboards(scheduler: Scheduler) -> list[Any]:
    try:
        from bokeh.server.tornado import BokehTornado
    except ImportError:
        return []
    return [each for each in scheduler.http_application.applications if isinstance(each, BokehTornado)]


def page(scheduler: Scheduler, extra: Any, doc: Any) -> None:
    """Fill a Bokeh document, and keep it up to date."""
    view = _View(scheduler)
    view.update()
    doc.add_root(view.root)
    doc.add_periodic_callback(view.update, REFRESH_MILLISECONDS)
    doc.title = "futurex: training"


class _View:
    """The figures of one visitor, of the run that he has chosen: the latest one until then."""

    def __init__(self, scheduler: Scheduler) -> None:
        from bokeh.layouts import column, gridplot
        from bokeh.models import ColumnDataSource, Div, Select
        from bokeh.plotting import figure

        self._scheduler = scheduler
        self._steps = ColumnDataSource({name: [] for name in _COLUMNS}, name="steps")
        self._shares = ColumnDataSource({name: [] for name in _SHARES}, name="shares")
        self._headline = Div(text="", name="headline", sizing_mode="stretch_width")
        self._choice = Select(title="run", options=["latest"], value="latest", name="run", width=320)
        size: dict[str, Any] = {"height": 220, "sizing_mode": "stretch_width", "tools": "pan,wheel_zoom,reset"}
        plots = []
        for name, label in _CURVES:
            plot = figure(title=label, x_axis_label="step", name=name, **size)
            plot.line("step", name, source=self._steps, line_width=2)
            plots.append(plot)
        bars = figure(title="communication, share of the step's time", name="communication", y_range=(0, 1), **size)
        bars.vbar_stack(
            ["exposed", "hidden"], x="rank", width=0.6, source=self._shares, color=["#c2661a", "#2f6fb5"],
            legend_label=["exposed: waited for", "hidden: beside computing"],
        )  # fmt: skip
        bars.xaxis.axis_label = "locality"
        bars.xaxis.ticker.min_interval = 1
        bars.add_layout(bars.legend[0], "right")
        grid = gridplot([plots[:2], [plots[2], bars]], sizing_mode="stretch_width", toolbar_location=None)
        self.root = column(self._headline, self._choice, grid, sizing_mode="stretch_width")

    def update(self) -> None:
        """Show what has come since."""
        plugin = self._scheduler.plugins.get(TrainingPlugin.name)
        runs: dict[str, Watched] = plugin.runs if isinstance(plugin, TrainingPlugin) else {}
        options = ["latest", *reversed(runs)]
        if self._choice.options != options:
            self._choice.options = options
        trained = [run for run in runs.values() if run.steps or run.share]
        run = runs.get(self._choice.value) or (trained[-1] if trained else None)
        if run is None:
            self._headline.text = "No training run has said anything yet."
            return
        stalls = "".join(f"<pre>{escape(stall)}</pre>" for stall in run.stalls)
        self._headline.text = f"<b>{escape(run.headline)}</b>{stalls}"
        steps = tuple(run.steps)
        self._steps.data = {name: [step[name] for step in steps] for name in _COLUMNS}
        shares = sorted(run.share.items())
        self._shares.data = {
            "rank": [rank for rank, _ in shares],
            **{name: [share[name] for _, share in shares] for name in _SHARES[1:]},
        }
