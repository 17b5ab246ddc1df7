"""A Kalman filter and Rauch-Tung-Striebel smoother for a point that moves in a plane."""

import numpy as np


def kalman(zs, x, P, F, H, Q, R):
    means, covs, priors = [], [], []
    loglik = 0.0
    for z in zs:
        x = F @ x
        P = F @ P @ F.T + Q
        priors.append((x, P))
        if not np.isnan(z).any():
            y = z - H @ x
            S = H @ P @ H.T + R
            K = P @ H.T @ np.linalg.inv(S)
            x = x + K @ y
            P = (np.eye(len(x)) - K @ H) @ P
            _, logdet = np.linalg.slogdet(S)
            loglik -= 0.5 * (y @ np.linalg.solve(S, y) + logdet + len(z) * np.log(2 * np.pi))
        means.append(x)
        covs.append(P)
    smooth = [means[-1]]
    for k in range(len(zs) - 2, -1, -1):
        gain = covs[k] @ F.T @ np.linalg.inv(priors[k + 1][1])
        smooth.insert(0, means[k] + gain @ (smooth[0] - priors[k + 1][0]))
    return np.array(means), np.array(smooth), loglik


def example(rng):
    dt = 0.1
    F = np.eye(4) + dt * np.eye(4, k=2)
    H = np.eye(2, 4)
    zs = np.cumsum(rng.normal(size=(30, 2)), axis=0)
    zs[10:13] = np.nan
    return zs, np.zeros(4), np.eye(4), F, H, 0.01 * np.eye(4), 0.5 * np.eye(2)
