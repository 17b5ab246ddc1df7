"""A decision tree for two classes by Gini's impurity (CART, 1984), kept in arrays, and what it predicts."""

import numpy as np


def best_split(x, y):
    best, feature, threshold = np.inf, -1, 0.0
    for f in range(x.shape[1]):
        order = np.argsort(x[:, f], kind="stable")
        values, labels = x[order, f], y[order]
        left = np.cumsum(labels)[:-1]
        count = np.arange(1, len(y))
        right, rest = labels.sum() - left, len(y) - count
        gini = 2 * left * (count - left) / count + 2 * right * (rest - right) / rest
        gini = np.where(values[1:] > values[:-1], gini, np.inf)
        k = gini.argmin()
        if gini[k] < best:
            best, feature, threshold = gini[k], f, (values[k] + values[k + 1]) / 2
    return feature, threshold


def grow(x, y, depth):
    size = 2 ** (depth + 1) - 1
    feature = np.full(size, -1)
    threshold = np.zeros(size)
    label = np.zeros(size, int)
    node = np.zeros(len(y), int)
    for k in range(size):
        own = node == k
        if not own.any():
            continue
        label[k] = 2 * y[own].sum() > own.sum()
        if 2 * k + 2 >= size or own.sum() < 4 or y[own].min() == y[own].max():
            continue
        feature[k], threshold[k] = best_split(x[own], y[own])
        right = x[:, feature[k]] > threshold[k]
        node = np.where(own, 2 * k + 1 + right, node)
    return feature, threshold, label


def predict(tree, x):
    feature, threshold, label = tree
    found = np.empty(len(x), int)
    for i, row in enumerate(x):
        k = 0
        while feature[k] >= 0:
            k = 2 * k + 1 + (row[feature[k]] > threshold[k])
        found[i] = label[k]
    return found


def binary_tree(x, y, unseen):
    tree = grow(x, y, 3)
    return (*tree, predict(tree, x), predict(tree, unseen))


def example(rng):
    x = rng.normal(size=(40, 3))
    return x, (x[:, 0] * x[:, 1] > 0).astype(int), rng.normal(size=(20, 3))
