"""Trees for other programs: Graphviz, Newick, CSV and JSON, and what a plan adds to them."""

import csv
import io
import json
import re

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.counters import NAMED, SHOWN, Profile, Row
from futurex.runtime.memory import Memory


@fx.futurize
def layer(w, x):
    h = np.tanh(x @ w)
    return (h * h).sum(), h


ARGS = np.eye(3), np.ones((4, 3))


@pytest.fixture
def graph():
    return layer.graph(*ARGS)


def test_graphviz_has_a_box_for_each_node_and_an_arrow_for_each_input(graph):
    text = graph.dot()
    boxes = re.findall(r'^  "([^"]+)" \[label="([^"]*)", tooltip="([^"]*)"\];$', text, re.MULTILINE)
    arrows = re.findall(r'^  "([^"]+)" -> "([^"]+)";$', text, re.MULTILINE)
    assert len(boxes) == len(graph.nodes)
    assert len(arrows) == sum(len(node.inputs) for node in graph.nodes)
    labels = [label for _, label, _ in boxes]
    assert r"w\nfloat64[3,3]" in labels  # what Graphviz reads as two lines; with the user's name of the argument
    assert not any(r"\\" in label for label in labels)
    assert any("h = np.tanh(x @ w)" in tip for _, _, tip in boxes)


def test_newick_names_every_node_and_closes_its_brackets(graph):
    text = graph.newick()
    assert text.count("(") == text.count(")")
    assert text.endswith(")layer;")
    assert set(re.findall(r"[a-z_]+\$\d+", text)) == {f"{node.op}${k}" for k, node in enumerate(graph.nodes)}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_row_for_each_node_in_the_columns_of_traveler(graph):
    rows = rows_of(graph.csv())
    assert list(rows[0]) == ["primitive_instance", "display_name", "count", "time", "eval_direct"]
    assert len(rows) == len(graph.nodes)
    assert rows[0]["display_name"].startswith("w(")
    assert {row["count"] for row in rows} == {"0"}


def test_the_csv_of_a_plan_says_how_often_and_how_long():
    staged = fx.futurize(layer.plain)
    for _ in range(3):
        staged(*ARGS)[0].result()
    plan = staged.trace(*ARGS).plan
    rows = {row["primitive_instance"]: row for row in rows_of(plan.csv())}
    assert set(re.findall(r"[a-z_]+\$\d+", plan.graph.newick())) <= set(rows)
    product = next(row for name, row in rows.items() if name.startswith("matmul"))
    assert product["count"] == "3"
    assert int(product["time"]) > 0


def test_json_holds_nodes_edges_and_lines(graph):
    found = json.loads(graph.to_json())
    assert (found["name"], found["hash"]) == ("layer", graph.hash)
    assert [node["display_name"] for node in found["nodes"][:2]] == ["w", "x"]
    names = {node["primitive_instance"] for node in found["nodes"]}
    assert all(set(node["inputs"]) <= names for node in found["nodes"])
    assert set(found["outs"]) <= names
    assert {node["file"] for node in found["nodes"]} == {"test_graph_exports.py"}


def test_a_profile_prints_as_a_table_with_the_longest_first():
    rows = [Row("add", "a.py:1", 4, 4_000, 72, "numpy", 4), Row("matmul", "a.py:2", 4, 8_000_000, 2_000_000, "gemm", 4)]
    head, first, second = repr(Profile(rows)).splitlines()
    assert head.split() == ["total", "each", "count", "each", "moves", "by", "operation"]
    assert first.split() == ["8.00", "ms", "2.00", "ms", "4", "2.00", "MB", "gemm", "matmul", "a.py:2"]
    assert second.split() == ["4.00", "µs", "1.00", "µs", "4", "72", "B", "numpy", "add", "a.py:1"]
    assert list(Profile(rows)) == rows


def test_a_long_profile_is_cut_and_says_so():
    rows = [Row("add", f"a.py:{k}", 1, 1_000, 8, "numpy", 1) for k in range(SHOWN + 5)]
    lines = repr(Profile(rows)).splitlines()
    assert len(lines) == SHOWN + 2
    assert lines[-1].split() == ["5.00", "µs", "in", "5", "more"]


def test_a_profile_has_one_line_for_the_rounds_of_a_loop():
    rows = [Row("add", "a.py:1", 4, 1_000, 8 * k, "numpy", 4, 1) for k in (1, 3)]
    _, line = repr(Profile(rows)).splitlines()
    assert line.split()[:6] == ["2.00", "µs", "250", "ns", "8", "16"]
    assert line.endswith("add  a.py:1  2 times before its code was compiled")


def test_a_profile_names_what_a_region_holds_and_what_was_interpreted():
    names = tuple(f"op{k}" for k in range(NAMED + 1))
    text = repr(Profile([Row("fused", "a.py:1", 9, 9, 8, "numba", 9, 2, names)]))
    assert f"fused ({', '.join(names[:NAMED])}, ...)  a.py:1  2 times before its code was compiled" in text
    assert names[-1] not in text


def test_the_profile_of_what_never_ran_staged_says_where_to_look():
    assert "f.explain()" in repr(fx.futurize(lambda x: x).profile())


def test_memory_names_its_peak_and_its_parts():
    assert repr(Memory(1000, 24, 0, 0)) == "<Memory: peak 1.02 kB = arena 1.00 kB + outputs 24 B>"
    assert repr(Memory(0, 0, 0, 0, unknown=1)) == "<Memory: peak 0 B, and 1 array whose size only the run knows>"
    assert re.match(r"<Memory: peak .* = .*>", repr(layer.memory(*ARGS)))
