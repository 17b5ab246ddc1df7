"""What people do with masked arrays, in steps: ways to make one, to go from one to the next, and to end."""

import numpy as np

STARTS, STEPS, ENDS = {}, {}, {}


def into(table):
    def add(function):
        table[function.__name__] = function
        return function

    return add


start, step, end = into(STARTS), into(STEPS), into(ENDS)

# -- making one: of an array, another of its shape, and a mask or None -------------------------------------------------


@start
def with_mask(x, y, mask):
    return np.ma.array(x, mask=mask)


@start
def copied_with_mask(x, y, mask):
    return np.ma.masked_array(x, mask, copy=True, fill_value=7)


@start
def without_mask(x, y, mask):
    return np.ma.array(x)


@start
def scalar_mask(x, y, mask):
    return np.ma.MaskedArray(x, mask=False)


@start
def everything_masked(x, y, mask):
    return np.ma.array(x, mask=True)


@start
def where_mask(x, y, mask):
    return np.ma.masked_where(y > 1, x)


@start
def where_mask_in_place(x, y, mask):
    return np.ma.masked_where(y > 1, x, copy=False)


@start
def equal(x, y, mask):
    return np.ma.masked_equal(x, 1)


@start
def not_equal(x, y, mask):
    return np.ma.masked_not_equal(x, 1)


@start
def greater(x, y, mask):
    return np.ma.masked_greater(x, 2)


@start
def less_equal(x, y, mask):
    return np.ma.masked_less_equal(x, y)


@start
def inside(x, y, mask):
    return np.ma.masked_inside(x, 2, 0)


@start
def outside(x, y, mask):
    return np.ma.masked_outside(x, 0, 2)


@start
def invalid(x, y, mask):
    return np.ma.masked_invalid(x)


@start
def values(x, y, mask):
    return np.ma.masked_values(x, 1)


@start
def fixed(x, y, mask):
    return np.ma.fix_invalid(np.ma.array(x, mask=mask))


@start
def chosen(x, y, mask):
    return np.ma.where(np.ma.array(x > 0, mask=mask), x, np.ma.array(y))


@start
def chosen_or_masked(x, y, mask):
    return np.ma.where(x > y, x, np.ma.masked)


@start
def stacked(x, y, mask):
    return np.ma.concatenate([np.ma.array(x, mask=mask)[:1], y[1:]])


@start
def made_twice(x, y, mask):
    return np.ma.array(np.ma.masked_greater(x, 2), mask=mask, dtype=np.float64)


# -- from one to the next ----------------------------------------------------------------------------------------------


@step
def plus_array(m, y):
    return m + y


@step
def array_minus(m, y):
    return y - m


@step
def times_number(m, y):
    return 3 * m


@step
def times_float(m, y):
    return m * 0.5


@step
def scalar_times(m, y):
    return y.max() * m


@step
def scalar_divided(m, y):
    return np.float32(3) / (y.min() - m)


@step
def times_itself(m, y):
    return m * np.ma.masked_equal(y, 2)


@step
def divided(m, y):
    return m / y


@step
def divided_by_it(m, y):
    return 1 / m


@step
def floor_divided(m, y):
    return m // 2


@step
def squared(m, y):
    return m**2


@step
def to_a_power(m, y):
    return m**0.5


@step
def negative(m, y):
    return -m


@step
def absolute(m, y):
    return abs(m)


@step
def square_root(m, y):
    return np.ma.sqrt(m)


@step
def square_root_of_numpy(m, y):
    return np.sqrt(m)


@step
def logarithm(m, y):
    return np.ma.log(m)


@step
def sum_by_numpy(m, y):
    return np.add(m, y)


@step
def quotient_by_numpy(m, y):
    return np.divide(y, m)


@step
def larger_of_two(m, y):
    return np.ma.maximum(m, y)


@step
def largest_of_numpy(m, y):
    return np.maximum(m, y)


@step
def added_in_place(m, y):
    m = m.copy()
    m += 1
    return m


@step
def multiplied_in_place(m, y):
    m = m * 1.0
    m *= np.ma.masked_less(y, 0)
    return m


@step
def divided_in_place(m, y):
    m = m * 1.0
    m /= y
    return m


@step
def masks_an_element(m, y):
    m = m.copy()
    m[0] = np.ma.masked
    return m


@step
def masks_where(m, y):
    m = m + 0
    m[y > 1] = np.ma.masked
    return m


@step
def writes_numbers(m, y):
    m = m.copy()
    m[..., 0] = 1
    return m


@step
def writes_through_a_view(m, y):
    m = np.ma.array(m * 1, mask=y > 2)
    part = m[1:]
    part[0] = 5
    part[..., -1] = np.ma.masked
    return m


@step
def writes_masked(m, y):
    m = m.copy()
    m[1:] = np.ma.masked_greater(y, 1)[1:]
    return m


@step
def masks_more(m, y):
    return np.ma.masked_greater(m, 2)


@step
def masks_another_value(m, y):
    return np.ma.masked_equal(m, 2)


@step
def sets_its_mask(m, y):
    m = m.copy()
    m.mask = y > 1
    return m


@step
def backwards(m, y):
    return m[::-1]


@step
def reshaped_and_back(m, y):
    return m.reshape(-1).reshape(m.shape)


@step
def transposed_twice(m, y):
    return m.T.copy().T


@step
def as_float(m, y):
    return m.astype(np.float32)


@step
def running_sum(m, y):
    return m.cumsum(axis=0)


@step
def away_from_its_mean(m, y):
    return m - m.mean()


@step
def scaled(m, y):
    low = m.min()
    return (m - low) * 255 / (m.max() - low)


@step
def rounded(m, y):
    return m.round(1)


@step
def chosen_by_it(m, y):
    return np.ma.where(m > 1, m, y)


@step
def shrunk(m, y):
    m = m + 0
    m.shrink_mask()
    return m


@step
def filled_on_the_way(m, y):
    return m + m.filled()


# -- ending ------------------------------------------------------------------------------------------------------------


@end
def itself(m, y):
    return m


@end
def filled(m, y):
    return m.filled(9), np.ma.filled(m, 0)


@end
def filled_by_default(m, y):
    return m.filled()


@end
def mask_and_data(m, y):
    return m.mask, m.data


@end
def masks_and_data_by_functions(m, y):
    return np.ma.getmaskarray(m), np.ma.getdata(m), np.ma.is_masked(m)


@end
def compressed(m, y):
    return m.compressed()


@end
def reductions(m, y):
    return m.sum(), m.mean(), m.min(), m.max(), m.count()


@end
def products(m, y):
    return m.prod(), m.any(), m.all(), np.ma.count_masked(m)


@end
def spread(m, y):
    return m.std(), np.ma.var(m, ddof=1)


@end
def along_an_axis(m, y):
    return m.sum(axis=0), m.mean(axis=-1), m.min(axis=0), m.max(axis=-1), m.count(axis=0)


@end
def spread_along_an_axis(m, y):
    return m.std(axis=0), m.var(axis=-1)


@end
def truth_along_an_axis(m, y):
    return m.any(axis=0), m.all(axis=-1), (m > 1).any()


@end
def kept_dimensions(m, y):
    return m.sum(axis=0, keepdims=True), m.max(axis=-1, keepdims=True)


@end
def places(m, y):
    return m.argmin(), m.argmax(axis=0), np.ma.argsort(m, axis=-1)


@end
def by_numpy(m, y):
    return np.sum(m), np.mean(m, axis=0), np.max(m), np.shape(m)


@end
def averages(m, y):
    return np.ma.average(m), np.ma.average(m, axis=0, weights=abs(y) + 1)


@end
def compared(m, y):
    return m > 1, m == y, y != m, m <= m


@end
def kinds(m, y):
    return isinstance(m, np.ma.MaskedArray), np.ma.isMaskedArray(m), len(m), m.shape, m.ndim, m.dtype.kind


@end
def an_element(m, y):
    return m[-1], m[..., 1]


@end
def picked_by_mask(m, y):
    return y[m.mask], m.data[~np.ma.getmaskarray(m)]


@end
def fill_values(m, y):
    return m.fill_value, (m / 2).fill_value
