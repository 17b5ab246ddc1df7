"""A game of minesweeper: numbers of neighbouring mines, and what a click opens."""

import numpy as np


def neighbours(mines):
    padded = np.pad(mines.astype(int), 1)
    return sum(
        padded[1 + i : padded.shape[0] - 1 + i, 1 + j : padded.shape[1] - 1 + j]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
        if (i, j) != (0, 0)
    )


def click(opened, numbers, mines, y, x):
    if mines[y, x]:
        return False
    stack = [(y, x)]
    while stack:
        i, j = stack.pop()
        if opened[i, j]:
            continue
        opened[i, j] = True
        if numbers[i, j] == 0:
            for di in range(-1, 2):
                for dj in range(-1, 2):
                    r, c = i + di, j + dj
                    if 0 <= r < mines.shape[0] and 0 <= c < mines.shape[1] and not opened[r, c]:
                        stack.append((r, c))
    return True


def minesweeper(mines, clicks):
    numbers = neighbours(mines)
    opened = np.zeros(mines.shape, bool)
    score = 0
    for y, x in clicks:
        if not click(opened, numbers, mines, y, x):
            break
        score += 1
    won = bool((opened | mines).all())
    return np.where(opened, numbers, -1), score, won


def example(rng):
    return rng.random((10, 12)) < 0.12, rng.integers(0, 10, (12, 2))
