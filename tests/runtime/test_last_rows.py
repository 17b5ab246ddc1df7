"""The last row of an array that grows is another one in each round, wherever the array lies: memory is used again."""

import numpy as np

import futurex as fx


def halved(x, end):
    t, path = 0.0, [x]
    while t < end:
        path.append(path[-1] * 0.5 + x)
        t += 1.0
    return np.stack(path)


def test_the_last_row_is_the_last_one():
    """A list of 3000 numbers an entry outgrows compiled code after 87 rounds: the rest are plans of a round, of which
    those that run often aim at arguments as they lie."""
    staged = fx.futurize(halved)
    for _ in range(6):
        for end in (5.0, 120.0, 130.0, 120.0):
            x = np.linspace(0.1, 1.0 + end, 3000)
            np.testing.assert_allclose(np.asarray(staged(x, end)), halved(x, end), rtol=1e-13)
