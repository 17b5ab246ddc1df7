"""Curves and timelines as SVG, by hand: no library, no script."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 36, 40
LANE, LANE_LABEL, LANE_WIDTH = 18, 150, 900
MAX_MARKS = 60
COLOURS = 6
TINY = 1e-300

Points = Sequence[tuple[float, float]]
Event = Mapping[str, Any]


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that span `low` to `high`.

    >>> ticks(0, 9.7)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    size = max(abs(low), abs(high), TINY)
    span = high - low
    if span < 1e-9 * size or span < TINY:  # closer together than the labels could tell
        span = size if size > TINY else 1.0
    raw = span / 5
    power = 10.0 ** math.floor(math.log10(raw))
    unit = next(power * factor for factor in (1, 2, 5, 10) if raw <= power * factor * (1 + 1e-9))
    first, last = math.floor(low / unit + 1e-9), math.ceil(high / unit - 1e-9)
    return [index * unit for index in range(first, max(last, first + 1) + 1)]


def draw_curves(series: Mapping[str, Points], x_label: str, y_label: str) -> str:
    """Return an SVG plot of named `(x, y)` points with axes and a legend; points that are not finite break the line.

    >>> draw_curves({"loss": [(1, 2.0), (2, 1.0)]}, "epoch", "loss").count("<polyline")
    1
    """
    finite = [point for points in series.values() for point in points if all(map(math.isfinite, point))]
    x_ticks = ticks(min(p[0] for p in finite), max(p[0] for p in finite)) if finite else [0.0, 1.0]
    y_ticks = ticks(min(p[1] for p in finite), max(p[1] for p in finite)) if finite else [0.0, 1.0]

    def across(x: float) -> float:
        return LEFT + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for y in y_ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {down(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, down(y) + 4, f"{y:.4g}", "end"))
    parts += [_text(across(x), HEIGHT - BOTTOM + 18, f"{x:.4g}", "middle") for x in x_ticks]
    parts.append(_text((WIDTH + LEFT) / 2, HEIGHT - 6, x_label, "middle"))
    parts.append(f'<g transform="rotate(-90 14 {HEIGHT / 2})">{_text(14, HEIGHT / 2, y_label, "middle")}</g>')
    for index, (name, points) in enumerate(series.items()):
        placed = [(across(x), down(y)) if math.isfinite(x) and math.isfinite(y) else None for x, y in points]
        parts += _line(name, points, placed, index % COLOURS)
        key = LEFT + 12 + index * 130
        parts.append(f'<rect class="c{index % COLOURS}" x="{key}" y="8" width="12" height="12"/>')
        parts.append(_text(key + 18, 18, name, "start"))
    label = f"{', '.join(series)} by {x_label}"
    return _svg("curve", label, WIDTH, HEIGHT, parts)


def _svg(kind: str, label: str, width: float, height: float, parts: Sequence[str]) -> str:
    head = f'<svg class="{kind}" role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}">'
    return head + "".join(parts) + "</svg>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(name: str, points: Points, placed: list[tuple[float, float] | None], colour: int) -> Iterator[str]:
    run: list[str] = []
    for place in [*placed, None]:
        if place is not None:
            run.append(f"{place[0]:.1f},{place[1]:.1f}")
        elif run:
            yield f'<polyline class="c{colour}" points="{" ".join(run)}"/>'
            run = []
    if len(points) <= MAX_MARKS:
        for (x, y), place in zip(points, placed, strict=True):
            if place is not None:
                mark = f'cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3"'
                yield f'<circle class="c{colour}" {mark}><title>{escape(name)} at {x:g}: {y:.6g}</title></circle>'


def draw_timeline(events: Sequence[Event]) -> str:
    """Return an SVG with one row per rank and lane of Chrome-trace events.

    Drawn are those with ph "X"; pid is the rank, tid the lane, ts and dur are microseconds. Events of a lane that
    overlap stand below each other; neighbours too short to be seen are drawn as one.

    >>> draw_timeline([{"ph": "X", "name": "conv", "pid": 0, "tid": "gpu", "ts": 0, "dur": 5}]).count("<title>")
    1
    """
    spans = sorted(
        (event for event in events if event.get("ph") == "X"), key=lambda event: (event["ts"], -event["dur"])
    )
    if not spans:
        return ""
    start, end = spans[0]["ts"], max(event["ts"] + event["dur"] for event in spans)
    scale = LANE_WIDTH / max(end - start, 1e-9)
    lanes: dict[tuple[str, str], list[Event]] = {}
    for event in sorted(spans, key=lambda event: (event["pid"], str(event["tid"]))):
        lanes.setdefault((str(event["pid"]), str(event["tid"])), []).append(event)
    colour = {tid: index % COLOURS for index, tid in enumerate(sorted({tid for _, tid in lanes}))}
    parts: list[str] = []
    y = 8
    for (pid, tid), members in lanes.items():
        parts.append(_text(4, y + 13, f"rank {pid} · {tid}", "start"))
        for row in _rows(members):
            parts += (_bar(bar, start, scale, y, colour[tid]) for bar in _bars(row, 1 / scale))
            y += LANE
        y += 4
    for at in ticks(0.0, (end - start) / 1000):
        x = LANE_LABEL + at * 1000 * scale
        if x <= LANE_LABEL + LANE_WIDTH:
            parts.append(f'<path class="grid" d="M{x:.1f} 4V{y}"/>' + _text(x, y + 14, f"{at:.4g} ms", "middle"))
    label = f"Timeline of {len(spans)} events on {len({pid for pid, _ in lanes})} ranks"
    return _svg("timeline", label, LANE_LABEL + LANE_WIDTH + 60, y + 24, parts)


def _rows(events: list[Event]) -> list[list[Event]]:
    rows: list[list[Event]] = []
    for event in events:
        free = next((row for row in rows if row[-1]["ts"] + row[-1]["dur"] <= event["ts"]), None)
        if free is None:
            rows.append(free := [])
        free.append(event)
    return rows


def _bars(row: list[Event], pixel: float) -> list[tuple[float, float, str]]:
    bars: list[tuple[float, float, str]] = []
    count = 0
    for event in row:
        ts, end = event["ts"], event["ts"] + event["dur"]
        if bars and count and end - ts < pixel and end - bars[-1][0] < 2 * pixel:
            count += 1
            bars[-1] = (bars[-1][0], end, f"{count} short events")
        else:
            count = 1 if end - ts < pixel else 0
            bars.append((ts, end, f"{event['name']}: {event['dur']:.6g} µs"))
    return bars


def _bar(bar: tuple[float, float, str], start: float, scale: float, y: int, colour: int) -> str:
    ts, end, title = bar
    place = f'x="{LANE_LABEL + (ts - start) * scale:.2f}" y="{y}" width="{max((end - ts) * scale, 0.5):.2f}"'
    return f'<rect class="event c{colour}" {place} height="{LANE - 3}"><title>{escape(title)}</title></rect>'
