"""An Asian option by Monte Carlo with antithetic paths, and an American put on a binomial tree (Cox et al. 1979)."""

import numpy as np


def asian(s0, k, r, sigma, t, steps, paths, seed):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((paths, steps))
    z = np.concatenate([z, -z])
    dt = t / steps
    logs = np.cumsum((r - 0.5 * sigma**2) * dt + sigma * np.sqrt(dt) * z, axis=1)
    mean = (s0 * np.exp(logs)).mean(axis=1)
    payoff = np.exp(-r * t) * np.maximum(mean - k, 0)
    return payoff.mean(), payoff.std(ddof=1) / np.sqrt(len(payoff))


def american_put(s0, k, r, sigma, t, steps):
    dt = t / steps
    u = np.exp(sigma * np.sqrt(dt))
    d = 1 / u
    p = (np.exp(r * dt) - d) / (u - d)
    j = np.arange(steps + 1)
    s = s0 * u ** (steps - j) * d**j
    v = np.maximum(k - s, 0.0)
    for _ in range(steps):
        s = s[:-1] * d
        v = np.exp(-r * dt) * (p * v[:-1] + (1 - p) * v[1:])
        v = np.maximum(v, k - s)
    return v[0]


def option_pricing(s0, k, r, sigma):
    return *asian(s0, k, r, sigma, 1.0, 12, 500, 7), american_put(s0, k, r, sigma, 1.0, 50)


def example(rng):
    return 100.0, float(rng.uniform(90, 110)), 0.05, 0.2
