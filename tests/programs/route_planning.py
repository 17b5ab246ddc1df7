"""The shortest way through a maze by A* (Hart, Nilsson and Raphael, 1968), with a heap of what is to be looked at."""

import heapq

import numpy as np

MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


def route_planning(walls, cost, start, goal):
    height, width = walls.shape
    far = np.full(walls.shape, np.inf)
    came = np.full(walls.shape, -1)
    far[start] = 0.0
    heap = [(0.0, start[0], start[1])]
    looked_at = 0
    while heap:
        _, i, j = heapq.heappop(heap)
        if came[i, j] >= 4:
            continue
        looked_at += 1
        if (i, j) == goal:
            break
        for k, (di, dj) in enumerate(MOVES):
            r, c = i + di, j + dj
            if not (0 <= r < height and 0 <= c < width) or walls[r, c]:
                continue
            length = far[i, j] + cost[r, c]
            if length < far[r, c]:
                far[r, c] = length
                came[r, c] = k
                heapq.heappush(heap, (length + abs(goal[0] - r) + abs(goal[1] - c), r, c))
    path = []
    i, j = goal
    while (i, j) != start and came[i, j] >= 0:
        path.append((i, j))
        di, dj = MOVES[came[i, j]]
        i, j = i - di, j - dj
    return far[goal], np.array(len(path)), looked_at, came


def example(rng):
    walls = rng.random((15, 15)) < 0.25
    walls[0, 0] = walls[14, 14] = False
    return walls, rng.uniform(1, 2, (15, 15)), (0, 0), (14, 14)
