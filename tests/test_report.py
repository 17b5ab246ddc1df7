"""The report is one file that shows what it was given and needs nothing else."""

import base64
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex.runtime.timeline import Timeline
from futurex.training.layout import BOX_HEIGHT, LAYER_HEIGHT, TreeNode, collapse, draw_tree
from futurex.training.plots import draw_curves, draw_timeline, ticks
from futurex.training.report import write_report


class Page(HTMLParser):
    """Collects elements and text, and checks that every element is closed in order."""

    def __init__(self, source):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def having(self, tag, class_=None):
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and (class_ is None or class_ in (attributes.get("class") or "").split())
        ]


@st.composite
def trees(draw, most=40):
    """A random acyclic list of nodes, in topological order."""
    count = draw(st.integers(0, most))
    nodes = []
    for i in range(count):
        inputs = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else ()
        nodes.append(TreeNode(i, draw(st.sampled_from(["add", "conv", "<b>&"])), tuple(inputs), title=str(i)))
    return nodes


def boxes(svg):
    """Position and size of every node box."""
    return [tuple(float(box[key]) for key in ("x", "y", "width")) for box in Page(svg).having("rect")]


TIMELINE = [
    {"ph": "X", "name": "conv <1>", "pid": rank, "tid": lane, "ts": start, "dur": 500}
    for rank in range(2)
    for lane, start in (("compute", 0), ("communication", 400))
]


@pytest.fixture
def page(tmp_path):
    history = [
        {"epoch": epoch, "loss": 2 / epoch, "val_loss": 2.5 / epoch, "accuracy": 1 - 0.5 / epoch}
        for epoch in range(1, 6)
    ]
    nodes = [TreeNode("x", "x"), TreeNode("w", "w"), TreeNode("y", "matmul", ("x", "w"), "line 3 of <model>")]
    path = write_report(
        tmp_path / "deep" / "run.html", title="har & <more>", history=history, tree=nodes,
        timeline=Timeline(TIMELINE),
        facts={"hidden communication": "83 %", "accuracy": 0.93125, "samples": 11716.0},
    )  # fmt: skip
    return path.read_text(encoding="utf-8")


def test_the_report_is_self_contained_and_well_formed(page):
    assert not re.search(r"https?:|//[a-z]|<script|@import|url\(", page)
    parsed = Page(page)
    for _, attributes in parsed.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "data:").startswith("data:")
    assert all(svg.get("aria-label") and svg.get("role") == "img" for svg in parsed.having("svg"))
    assert len(parsed.having("svg")) == 4
    assert "prefers-color-scheme:dark" in page


def test_the_report_shows_what_it_was_given(page):
    parsed = Page(page)
    assert "har & <more>" in parsed.text
    assert len(parsed.having("g", "node")) == 3
    assert "line 3 of <model>" in parsed.text
    lines = parsed.having("polyline")
    assert [len(line["points"].split()) for line in lines] == [5, 5, 5]  # loss, val_loss, accuracy
    assert len(parsed.having("rect", "event")) == 4
    for fact in ("hidden communication", "83 %", "0.9313", "11,716"):
        assert fact in parsed.text
    (link,) = parsed.having("a")
    trace = json.loads(base64.b64decode(link["href"].partition("base64,")[2]))
    assert [event["ph"] for event in trace["traceEvents"] if event["ph"] != "M"] == ["X"] * 4
    assert trace == Timeline(TIMELINE).document()


def test_a_report_before_the_first_epoch_says_so(tmp_path):
    path = write_report(tmp_path / "run.html", title="har", history=[])
    assert "No epoch has ended yet." in Page(path.read_text()).text
    write_report(path, title="har", history=[{"epoch": 1, "loss": 1.0}])
    assert "No epoch" not in path.read_text()


@given(low=st.floats(-1e9, 1e9), span=st.floats(0, 1e9))
def test_ticks_are_few_and_span_the_values(low, span):
    marks = ticks(low, low + span)
    slack = 1e-6 * (marks[-1] - marks[0]) + 1e-9
    assert 2 <= len(marks) <= 8
    assert marks[0] <= low + slack
    assert marks[-1] >= low + span - slack
    assert marks == sorted(set(marks))


def test_a_curve_goes_down_where_the_loss_does_and_breaks_at_what_is_not_finite():
    svg = draw_curves({"loss": [(1, 4.0), (2, 2.0), (3, math.nan), (4, 1.0), (5, math.inf)]}, "epoch", "loss")
    first, second = (line["points"].split() for line in Page(svg).having("polyline"))
    places = [tuple(map(float, place.split(","))) for place in first + second]
    assert (len(first), len(second)) == (2, 1)
    assert [x for x, _ in places] == sorted({x for x, _ in places})
    assert [y for _, y in places] == sorted({y for _, y in places})  # y grows downwards
    assert "nan" not in svg
    assert "inf" not in svg


@given(st.lists(st.floats(-1e12, 1e12) | st.just(math.nan), max_size=5))
def test_any_curve_stays_inside_its_axes(values):
    svg = draw_curves({"loss": list(enumerate(values))}, "epoch", "loss")
    for mark in Page(svg).having("circle"):
        assert 64 <= float(mark["cx"]) <= 624
        assert 15.9 <= float(mark["cy"]) <= 220.1


def test_events_that_overlap_do_not_hide_each_other():
    spans = [(0, 10), (2, 4), (7, 2), (10, 5)]
    svg = draw_timeline([{"ph": "X", "name": "op", "pid": 0, "tid": "a", "ts": ts, "dur": dur} for ts, dur in spans])
    bars = [(float(bar["x"]), float(bar["width"]), bar["y"]) for bar in Page(svg).having("rect", "event")]
    assert len(bars) == 4
    for row in {y for *_, y in bars}:
        inside = sorted((x, x + width) for x, width, y in bars if y == row)
        assert all(end <= start + 0.02 for (_, end), (start, _) in pairwise(inside))


def test_a_long_trace_is_drawn_with_few_bars():
    events = [{"ph": "X", "name": "op", "pid": 0, "tid": "a", "ts": i, "dur": 0.5} for i in range(50_000)]
    bars = Page(draw_timeline(events)).having("rect", "event")
    assert 100 < len(bars) < 2000
    assert "Timeline of 50000 events on 1 ranks" in draw_timeline(events)


@given(trees())
def test_a_drawing_has_every_node_below_its_inputs_and_none_over_another(nodes):
    svg = draw_tree(nodes)
    placed = boxes(svg)
    assert len(placed) == len(nodes)
    layer = {node.id: round((y - 12) / LAYER_HEIGHT) for node, (_, y, _) in zip(nodes, placed, strict=True)}
    assert all(layer[node.id] > layer[parent] for node in nodes for parent in node.inputs)
    for x, y, width in placed:
        assert x >= 0
        over = [other for other in placed if other[1] == y and other[0] < x + width and x < other[0] + other[2]]
        assert over == [(x, y, width)]
    assert BOX_HEIGHT < LAYER_HEIGHT
    assert "<b>" not in svg


@given(trees(most=60), st.integers(1, 20))
def test_collapsing_keeps_to_the_limit_and_stays_a_tree(nodes, limit):
    groups = collapse(nodes, limit)
    assert len(groups) <= limit or groups == nodes == []
    assert len(boxes(draw_tree(groups))) == len(groups)  # raises for a cycle or an unknown input
    assert sorted(int(i) for group in groups for i in group.title.split("\n")) == [node.id for node in nodes]
    if len(nodes) <= limit:
        assert groups == nodes


def test_a_drawing_of_many_nodes_says_how_many_there_are():
    svg = draw_tree([TreeNode(i, "add", (i - 1,) if i % 10 else ()) for i in range(400)])
    assert "400 nodes in 40 groups" in svg


@pytest.mark.parametrize(
    "nodes, message",
    [
        ([TreeNode(0, "a"), TreeNode(0, "b")], "same id"),
        ([TreeNode(0, "a", (7,))], "reads 7, which is not in the tree"),
        ([TreeNode(0, "a", (1,)), TreeNode(1, "b", (0,))], "in a circle"),
    ],
)
def test_what_is_no_tree_is_refused(nodes, message):
    with pytest.raises(ValueError, match=message):
        draw_tree(nodes)
