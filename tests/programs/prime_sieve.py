"""The sieve of Eratosthenes, and the factors of numbers by trial division with the primes found."""

import numpy as np


def primes_below(n):
    sieve = np.ones(n, dtype=bool)
    sieve[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if sieve[i]:
            sieve[i * i :: i] = False
    return np.nonzero(sieve)[0]


def prime_sieve(numbers, limit):
    primes = primes_below(limit)
    rest = numbers.copy()
    count = np.zeros(len(numbers), dtype=int)
    for p in primes:
        while True:
            divides = rest % p == 0
            if not divides.any():
                break
            rest[divides] //= p
            count += divides
    return primes, count + (rest > 1)


def example(rng):
    return rng.integers(2, 2000, 50), 60
