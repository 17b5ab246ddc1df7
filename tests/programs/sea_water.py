"""The density of sea water by the equation of state of 1980 (N. P. Fofonoff and R. C. Millard, UNESCO technical papers
in marine science 44, 1983), the stability of a grid of columns, and one step that mixes what is unstable."""

import numpy as np

GRAVITY = 9.80665


def of_fresh_water(t):
    return 999.842594 + t * (
        6.793952e-2 + t * (-9.095290e-3 + t * (1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9)))
    )


def at_the_surface(s, t):
    a = 0.824493 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    b = -5.72466e-3 + t * (1.0227e-4 + t * -1.6546e-6)
    return of_fresh_water(t) + a * s + b * s * np.sqrt(s) + 4.8314e-4 * s**2


def secant_bulk_modulus(s, t, p):
    root = s * np.sqrt(s)
    k = 19652.21 + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 + t * -5.155288e-5)))
    k = k + s * (54.6746 + t * (-0.603459 + t * (1.09987e-2 + t * -6.1670e-5)))
    k = k + root * (7.944e-2 + t * (1.6483e-2 + t * -5.3009e-4))
    a = 3.239908 + t * (1.43713e-3 + t * (1.16092e-4 + t * -5.77905e-7))
    a = a + s * (2.2838e-3 + t * (-1.0981e-5 + t * -1.6078e-6)) + 1.91075e-4 * root
    b = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8)
    b = b + s * (-9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10))
    return k + p * (a + p * b)


def density(s, t, p):
    return at_the_surface(s, t) / (1 - p / secant_bulk_modulus(s, t, p))


def sea_water(s, t, depth):
    """Salinity (1e-3) and temperature (C) of columns with the surface first, at depths in metres."""
    p = 0.1 * depth  # bar, nearly
    rho = density(s, t, p)
    middle = 0.5 * (p[1:] + p[:-1])
    upper = density(s[:, :, :-1], t[:, :, :-1], middle)
    lower = density(s[:, :, 1:], t[:, :, 1:], middle)
    stability = GRAVITY / rho[:, :, 1:] * (lower - upper) / (depth[1:] - depth[:-1])
    share = np.where(stability < 0, 0.25, 0.0)
    mixed = t.copy()
    flow = share * (t[:, :, 1:] - t[:, :, :-1])
    mixed[:, :, :-1] += flow
    mixed[:, :, 1:] -= flow
    return rho, stability, mixed


def example(rng):
    depth = np.array([5.0, 15, 30, 50, 75, 100, 150, 250, 400, 600, 900, 1300])
    t = 4 + 16 * np.exp(-depth / 300) + rng.normal(0, 0.5, (24, 20, 12))
    return 35 + rng.normal(0, 0.3, (24, 20, 12)), t, depth
