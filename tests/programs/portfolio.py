"""A portfolio: yields of bonds by Newton's method, a back-test with a moving average, risk figures."""

import numpy as np


def bond_yield(price, coupon, years, face=100.0):
    y = 0.05
    times = np.arange(1, years + 1)
    flows = np.full(years, coupon * face)
    flows[-1] += face
    for _ in range(50):
        discount = (1 + y) ** -times
        value = np.sum(flows * discount)
        slope = -np.sum(times * flows * discount) / (1 + y)
        step = (value - price) / slope
        y -= step
        if abs(step) < 1e-12:
            break
    return y


def max_drawdown(wealth):
    peak, worst = wealth[0], 0.0
    for value in wealth:
        if value > peak:
            peak = value
        worst = max(worst, (peak - value) / peak)
    return worst


def backtest(prices, window, cost):
    days, assets = prices.shape
    returns = prices[1:] / prices[:-1] - 1
    position = np.zeros(assets)
    wealth = np.ones(days)
    trades = 0
    for day in range(window, days - 1):
        average = prices[day - window : day].mean(axis=0)
        signal = np.where(prices[day] > average, 1.0, 0.0)
        target = signal / signal.sum() if signal.any() else np.zeros(assets)
        turnover = np.abs(target - position).sum()
        if turnover > 0.05:
            trades += 1
            position = target
        else:
            turnover = 0.0
        wealth[day + 1] = wealth[day] * (1 + returns[day] @ position - cost * turnover)
    return wealth, trades


def portfolio(prices, coupons, quotes):
    yields = np.array([bond_yield(q, c, 3 + k) for k, (q, c) in enumerate(zip(quotes, coupons))])  # noqa: B905
    wealth, trades = backtest(prices, 10, 0.001)
    daily = np.diff(np.log(wealth[10:]))
    sharpe = daily.mean() / daily.std(ddof=1) * np.sqrt(252)
    var = np.percentile(daily, 5)
    shortfall = daily[daily <= var].mean()
    return {
        "yields": yields, "trades": trades, "sharpe": sharpe, "drawdown": max_drawdown(wealth),
        "value at risk": var, "shortfall": shortfall, "correlation": np.corrcoef(prices, rowvar=False),
    }  # fmt: skip


def example(rng):
    prices = 100 * np.exp(np.cumsum(rng.normal(0.0005, 0.02, (90, 4)), axis=0))
    return prices, rng.uniform(0.02, 0.06, 5), rng.uniform(92, 106, 5)
