"""Functions that call helpers which call themselves until data says that it is enough."""

import numpy as np
from compare import Cases

cases = Cases()
LEFT, RIGHT = np.array([1, 3, -1, 5, -1, -1, -1]), np.array([2, 4, 6, -1, -1, -1, -1])
WEIGHTS = np.arange(7.0) / 4 - 0.5
IMAGE = np.random.default_rng(3).random((6, 7)) < 0.35


def gcd(a, b):
    return a if b == 0 else gcd(b, a % b)


@cases(np.array([48, 36]))
@cases(np.array([7, 0]))
@cases(np.array([-12, 7]))
def greatest_common_divisors(v):
    return gcd(int(v[0]), int(v[1])), gcd(v[0], v[1])


def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


@cases(np.array([2, 3]))
@cases(np.array([0, 3]))
def a_call_among_the_arguments_of_a_call(v):
    return ackermann(int(v[0]), int(v[1]))


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@cases(np.array([9, 4]))
def several_in_a_loop(v):
    return [fibonacci(n) for n in v], fibonacci(int(v[0]))


def power(x, n):
    if n == 0:
        return 1.0
    half = power(x, n // 2)
    return half * half * x if n % 2 else half * half


@cases(np.array([1.5, -2.0]), np.array([13]))
@cases(np.array([0.0, 3.0]), np.array([0]))
def a_base_of_python_numbers(x, n):
    return power(x[0], n[0]) + x[1], x[0] * power(x[1], int(n[0]))


@cases(np.array([1.5, -2.0]), np.array([13]), staged=False)
@cases(np.array([0.0, 3.0]), np.array([0]), staged=False)
def a_result_that_is_its_base(x, n):
    return power(x[0], n[0]) + 1, power(x[1], int(n[0]))


def height(left, right, i):
    if i < 0:
        return 0
    return 1 + max(height(left, right, left[i]), height(left, right, right[i]))


@cases(LEFT, RIGHT)
def height_of_a_tree(left, right):
    return height(left, right, 0)


def descend(left, right, weights, i, low=-10.0, *, high=10.0):
    """Bounds narrow on the way down, two results come up."""
    if i < 0:
        return True, 0
    w = weights[i]
    first, n = descend(left, right, weights, left[i], low, high=w)
    second, m = descend(left, right, weights, right[i], w, high=high)
    return bool(low < w < high and first and second), n + m + 1


@cases(LEFT, RIGHT, WEIGHTS)
@cases(LEFT, RIGHT, np.array([0, -3, 4, -4, -1, -5, 6.0]))
def a_search_tree(left, right, weights):
    return descend(left, right, weights, 0)


def queens(board, row):
    if row == len(board):
        return 1
    total = 0
    for column in range(len(board)):
        free = True
        for above in range(row):
            if board[above] == column or abs(board[above] - column) == row - above:
                free = False
        if free:
            board[row] = column
            total += queens(board, row + 1)
    return total


@cases(np.zeros(5, int), np.array([0]))
@cases(np.array([1, 0, 0, 0]), np.array([1]))
def loops_around_calls_that_write_an_argument(board, row):
    return queens(board, int(row[0])), board


def fill(image, i, j):
    if i < 0 or j < 0 or i >= image.shape[0] or j >= image.shape[1] or image[i, j]:
        return
    image[i, j] = True
    fill(image, i + 1, j)
    fill(image, i - 1, j)
    fill(image, i, j + 1)
    fill(image, i, j - 1)


@cases(IMAGE)
@cases(~IMAGE)
def flood_fill(image):
    image = image.copy()
    fill(image, 2, 2)
    return image


def simpson(f, a, b, fa, fm, fb, tolerance):
    m = (a + b) / 2
    left, right = f((a + m) / 2), f((m + b) / 2)
    whole, halves = (b - a) * (fa + 4 * fm + fb) / 6, (b - a) * (fa + 4 * left + 2 * fm + 4 * right + fb) / 12
    if abs(halves - whole) < tolerance:
        return halves
    return simpson(f, a, m, fa, left, fm, tolerance / 2) + simpson(f, m, b, fm, right, fb, tolerance / 2)


@cases(np.array([1.3, 2.0]))
@cases(np.array([-0.3, 9.0]))
def a_function_among_the_arguments(p):
    f = lambda x: np.exp(-p[0] * x * x) * np.cos(p[1] * x)  # noqa: E731
    return simpson(f, -1.0, 2.0, f(-1.0), f(0.5), f(2.0), 1e-4)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


@cases(np.array([14]))
@cases(np.array([3]))
def two_that_call_each_other(v):
    return is_even(int(v[0])), is_odd(v[0])


def step(x, n):
    """Small arrays go down and come back."""
    if n == 0 or x.sum() > 30:
        return x
    y = step(x * 1.5 + 1, n - 1)
    return y - x


@cases(np.array([1.0, 2.0]), np.array([3]))
@cases(np.array([1.0, 20.0]), np.array([9]))
def arrays_on_the_stack(x, n):
    return step(x, int(n[0])), x


def reciprocals(n, last):
    if n == last:
        return 0.0
    return 1 / n + reciprocals(n - 1, last)


@cases(np.array([5, 0]))
@cases(np.array([5, -3]))
def a_division_by_zero_on_the_way(v):
    return reciprocals(int(v[0]), int(v[1]))


def checked(n, v):
    if n > 6:
        raise ValueError(f"{n} is too much")
    assert v[n] != 3, "three"
    return v[n] if n > 4 else checked(n + v[n], v) * 2


@cases(np.array([1, 1, 2, 0, 2, 0, 8]))
@cases(np.array([1, 2, 0, 3, 0, 0, 0]))
@cases(np.array([4, 0, 0, 0, 3, 0, 0]))
@cases(np.array([20, 0, 0, 0, 3, 0, 0]))
def errors_inside(v):
    return checked(v[0], v)


def count(n):
    return 0 if n == 0 else 1 + count(n - 1)


@cases(np.array([450]))
@cases(np.array([700]))
@cases(np.array([5000]))
def deep_and_too_deep(v):
    return count(int(v[0]))


def halves(x):
    return x / 4 if x < 1 else halves(x / 2)


@cases(np.array([40]))
def another_type_from_the_second_level_on(v):
    return halves(int(v[0]))


def shrink(x):
    return x.sum() if x[0] < 0 or len(x) < 2 else shrink(x[1:]) + 1


@cases(np.array([2.0, 1.0, -1.0, 4.0] * 20), staged="fragment")
def arrays_of_another_size_on_each_level(x):
    return shrink(x)


def collect(found, n):
    if n > 0:
        found.append(n)
        collect(found, n - 2)


@cases(np.array([7]), staged=False)
def a_list_that_every_level_appends_to(v):
    found = []
    collect(found, int(v[0]))
    return len(found)


def swapped(a, b, n):
    if n == 0:
        return a[0]
    a[0] += b[1]
    return swapped(b, a, n - 1)


@cases(np.arange(3.0), np.arange(4.0, 7.0), np.array([4]), staged="fragment")
def arrays_that_change_places(a, b, n):
    return swapped(a, b, int(n[0])), a, b


def guarded(n):
    try:
        return guarded(n - 1) + 1 if n > 0 else 1 // n
    except ZeroDivisionError:
        return 0


@cases(np.array([3]), staged="fragment")
def a_try_statement_around_the_call(v):
    return guarded(int(v[0]))


def told(n):
    print("at", n)
    return n if n < 1 else told(n - 1)


@cases(np.array([3]), staged=False)
def prints_on_every_level(v):
    return told(int(v[0]))


def mixed(n):
    return 0 if n <= 0 else 0.5 + mixed(n - 1)


@cases(np.array([3]), staged="fragment")
@cases(np.array([0]), staged="fragment")
def results_of_two_types(v):
    return mixed(int(v[0]))


def own_copy(board, n):
    """An array of its own on every level, made from the one above."""
    board = board.copy()
    board[n % len(board)] += n
    if n < 1:
        return board.sum()
    return own_copy(board, n - 1) + own_copy(board, n - 2) - board[0]


@cases(np.arange(4.0), np.array([5]))
def arrays_of_each_level(board, n):
    return own_copy(board, int(n[0])), board


def outer(n):
    if n <= 0:
        return 1
    return inner(n, n) + outer(n - 1)


def inner(n, k):
    return n if k <= 0 else inner(n + 1, k - 2)


@cases(np.array([6]))
def one_inside_the_other(v):
    return outer(int(v[0]))


def first(n):
    return 1 if n <= 0 else first(n - 1) + second(n - 2)


def second(n):
    return 2 if n <= 0 else second(n - 1) * 3 + first(n - 3)


@cases(np.array([6, 5]), staged=False)
def each_calls_itself_and_the_other(v):
    return first(int(v[0])), second(int(v[1]))


@cases(np.array([6, 2, -1, 8]))
def a_function_made_inside(v):
    def total(i):
        if i >= v[1] * 2:
            return v[0]
        return total(i + 1) + v[i]

    return total(0) + total(v[1])


def filled(grid):
    """Go on at the first place without a number, and back where none fits: the body calls itself at 8 x 12 places."""
    for place in range(8):
        if grid[place] == 0:
            for value in range(1, 13):
                if np.all(grid != value) and (place == 0 or grid[place - 1] < value):
                    grid[place] = value
                    if filled(grid):
                        return True
                    grid[place] = 0
            return False
    return True


@cases(np.array([0, 2, 0, 4, 0, 9, 0, 12]), staged="fragment")
@cases(np.array([0, 2, 0, 3, 0, 9, 0, 12]), staged="fragment")
def a_search_over_all_places(grid):
    return filled(grid), grid
