"""The report of a run: one HTML file that needs nothing else, not even the network."""

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from futurex.files import write_aside
from futurex.runtime.timeline import Timeline
from futurex.training.layout import TreeNode, draw_tree
from futurex.training.plots import draw_curves, draw_timeline

PLOTS = (("loss", ("loss", "val_loss")), ("share", ("accuracy", "val_accuracy")))
STYLE = """
:root{--page:#fff;--ink:#1b2430;--dim:#566274;--line:#d7dce3;--box:#e3eefc;--edge:#8793a5;
--c0:#2f6fb5;--c1:#c2661a;--c2:#2f7d4c;--c3:#8a4fae;--c4:#a8323e;--c5:#5b6470}
@media (prefers-color-scheme:dark){
:root{--page:#12161c;--ink:#e6ebf2;--dim:#a3afbf;--line:#323b47;--box:#182c48;--edge:#6a778a;
--c0:#6aa2ee;--c1:#f0a053;--c2:#5fbf83;--c3:#c08ae0;--c4:#ee7d87;--c5:#a9b3c1}}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1160px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}a{color:var(--c0)}
table{border-collapse:collapse}th,td{padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--line);
text-align:left;font-variant-numeric:tabular-nums}th{font-weight:600}
.plots{display:flex;flex-wrap:wrap;gap:1rem}.plots svg{flex:1 1 420px;max-width:640px}
.wide{overflow:auto;max-height:80vh}
svg{height:auto;max-width:100%}svg.tree{max-width:none}svg.timeline{min-width:700px;width:100%}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .tick{fill:var(--dim)}.grid{stroke:var(--line);fill:none}
.node rect{fill:var(--box);stroke:var(--edge)}.node text{text-anchor:middle;font-family:ui-monospace,monospace}
.edges path{fill:none;stroke:var(--edge);stroke-width:1.2}polyline{fill:none;stroke-width:2}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c5{fill:var(--c5)}
polyline.c0{fill:none;stroke:var(--c0)}polyline.c1{fill:none;stroke:var(--c1)}polyline.c2{fill:none;stroke:var(--c2)}
"""


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    history: Sequence[Mapping[str, Any]],
    tree: Sequence[TreeNode] = (),
    timeline: Timeline | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write one self-contained HTML file and return its path; an older file there is replaced.

    `history` has one record per epoch (`epoch`, `loss`, ...), `tree` the nodes of the step, `timeline` what was
    recorded (drawn, and embedded for download), `facts` what a reader wants first. Empty parts
    are left out.

    >>> write_report("run.html", title="har", history=[{"epoch": 1, "loss": 0.4}], facts={"accuracy": 0.93})
    PosixPath('run.html')
    """
    sections = [_facts(facts or {}), _history(history), _timeline(timeline or Timeline()), _tree(tree)]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{''.join(sections)}</main></body></html>\n"
    )
    target = Path(path)
    write_aside(target, lambda file: file.write(page.encode()))
    return target


def _facts(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{_show(value)}</td></tr>' for name, value in facts.items()
    )
    return f'<section aria-label="Facts"><table class="facts">{rows}</table></section>'


def _history(history: Sequence[Mapping[str, Any]]) -> str:
    if not history:
        return '<section aria-label="Training"><h2>Training</h2><p>No epoch has ended yet.</p></section>'
    plots = []
    for label, names in PLOTS:
        series = {name: _points(history, name) for name in names if any(name in record for record in history)}
        if series:
            plots.append(draw_curves(series, "epoch", label))
    columns = list(dict.fromkeys(name for record in history for name in record))
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_show(record.get(name, ''))}</td>" for name in columns) + "</tr>" for record in history
    )
    table = (
        f'<div class="wide"><table class="history"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    return (
        f'<section aria-label="Training"><h2>Training</h2><div class="plots">{"".join(plots)}</div>'
        f"<details><summary>{len(history)} epochs in figures</summary>{table}</details></section>"
    )


def _points(history: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return one point per epoch; an epoch without a value is not a number, which breaks the line."""
    missing = math.nan
    return [
        (float(record.get("epoch", number)), missing if record.get(name) is None else float(record[name]))
        for number, record in enumerate(history, 1)
    ]


def _timeline(timeline: Timeline) -> str:
    drawing = draw_timeline(timeline.events)
    if not drawing:
        return ""
    raw = base64.b64encode(json.dumps(timeline.document()).encode()).decode()
    link = f'<a download="trace.json" href="data:application/json;base64,{raw}">Download the trace</a>'
    return (
        f'<section aria-label="Timeline"><h2>Timeline</h2><div class="wide">{drawing}</div>'
        f"<p>{link} in Chrome's trace format.</p></section>"
    )


def _tree(nodes: Sequence[TreeNode]) -> str:
    if not nodes:
        return ""
    return f'<section aria-label="Tree"><h2>Tree</h2><div class="wide">{draw_tree(nodes)}</div></section>'


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return escape(str(value))
