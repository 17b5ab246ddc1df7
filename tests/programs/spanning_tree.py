"""Kruskal's spanning tree with union-find, topological order, and the strongest flow by Edmonds and Karp (1972)."""

import numpy as np


def find(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def kruskal(edges, weights, nodes):
    parent = np.arange(nodes)
    rank = np.zeros(nodes, dtype=int)
    chosen, total = [], 0.0
    for k in np.argsort(weights, kind="stable"):
        a, b = find(parent, edges[k, 0]), find(parent, edges[k, 1])
        if a == b:
            continue
        if rank[a] < rank[b]:
            a, b = b, a
        parent[b] = a
        if rank[a] == rank[b]:
            rank[a] += 1
        chosen.append(k)
        total += weights[k]
    return np.array(chosen), total


def max_flow(capacity, source, sink):
    residual = capacity.copy()
    n = len(residual)
    flow = 0.0
    while True:
        parent = -np.ones(n, dtype=int)
        parent[source] = source
        queue = [source]
        while queue and parent[sink] < 0:
            u = queue.pop(0)
            for v in range(n):
                if parent[v] < 0 and residual[u, v] > 1e-12:
                    parent[v] = u
                    queue.append(v)
        if parent[sink] < 0:
            return flow, residual
        path, v = np.inf, sink
        while v != source:
            path = min(path, residual[parent[v], v])
            v = parent[v]
        v = sink
        while v != source:
            residual[parent[v], v] -= path
            residual[v, parent[v]] += path
            v = parent[v]
        flow += path


def spanning_tree(edges, weights, capacity):
    chosen, total = kruskal(edges, weights, int(edges.max()) + 1)
    flow, residual = max_flow(capacity, 0, len(capacity) - 1)
    return chosen, total, flow, residual


def example(rng):
    nodes = 16
    chain = np.stack([np.arange(nodes - 1), np.arange(1, nodes)], axis=1)
    edges = np.concatenate([chain, rng.integers(0, nodes, (30, 2))])
    capacity = np.where(rng.random((9, 9)) < 0.5, rng.uniform(1, 8, (9, 9)), 0.0)
    np.fill_diagonal(capacity, 0.0)
    return edges, rng.random(len(edges)), capacity
