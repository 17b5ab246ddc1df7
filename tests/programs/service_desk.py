"""Customers who arrive at random at a desk with some clerks: events in a heap, those who wait in a queue."""

import heapq
from collections import deque

import numpy as np


def service_desk(gaps, services, clerks):
    arrivals = np.cumsum(gaps)
    waits = np.zeros(len(gaps))
    events = [(arrivals[0], 0, 0)]  # when, an arrival or 1 where a clerk is free again, and of whom
    waiting = deque()
    free, longest, busy = clerks, 0, 0.0
    while events:
        now, kind, who = heapq.heappop(events)
        if kind == 0:
            waiting.append(who)
            longest = max(longest, len(waiting))
            if who + 1 < len(arrivals):
                heapq.heappush(events, (arrivals[who + 1], 0, who + 1))
        else:
            free += 1
        while free > 0 and waiting:
            nxt = waiting.popleft()
            free -= 1
            waits[nxt] = now - arrivals[nxt]
            busy += services[nxt]
            heapq.heappush(events, (now + services[nxt], 1, nxt))
    return waits, longest, busy / (now * clerks)


def example(rng):
    return rng.exponential(1.0, 60), rng.exponential(1.8, 60), 2
