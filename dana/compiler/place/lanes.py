"""How many rows of operations the exchanges between lanes take.

In: lengths of vectors, the lanes of a thread. Out: numbers, to choose by how values lie. `reduce.py` and `convert.py`
emit the operations; they and these numbers agree on how a vector divides into rows (`blocks`).
"""

from dana.compiler.place.rows import Form


def blocks(n: int, lanes: int) -> list[tuple[int, int, int]]:
    """(first row, rows, elements of each) of whole rows of lanes and of the last one."""
    whole, left = divmod(n, lanes)
    return [block for block in ((0, whole, lanes), (whole, 1, left)) if block[1] and block[2]]


def rows_to_broadcast(n: int, lanes: int) -> int:
    """Rows of operations that broadcast a packed vector."""
    return sum(rows * _rows_to_broadcast(count, lanes) for _, rows, count in blocks(n, lanes))


def _rows_to_broadcast(count: int, lanes: int) -> int:
    bits = (count - 1).bit_length()
    # to fill the lanes the row is doubled; then each bit of the lane number doubles the rows, up to `count`
    copies = (lanes - 1).bit_length() - bits
    return copies + sum(min(count, 2 << bit) for bit in range(bits))


def rows_to_pack(n: int, lanes: int) -> int:
    """Rows of operations that pack a broadcast vector."""
    return sum(rows * max(count - 1, 1) for _, rows, count in blocks(n, lanes))


def rows_to_merge(tuples: int, lanes: int) -> int:
    """Rows of operations that merge a scalar of tuples over lanes, those that the round does not have among them."""
    # the identity goes into lanes of tuples that are not there
    found = rows = tuples // lanes
    crossed = 0
    for _ in range((lanes - 1).bit_length()):
        crossed += rows > 1
        rows = max(rows // 2, 1)
        found += rows
    # rows are merged, then what crossed rows left in lanes
    return found + rows - 1 + crossed


def rows_to_reduce(vectors: int, last: int, form: Form, lanes: int) -> int:
    """Rows of operations that reduce rows within themselves.

    Parameters
    ----------
    vectors, last
        How many there are, and how many of them follow one another along the last axis that is left.
    form
        Of the result.
    """
    bits = (lanes - 1).bit_length()
    if form is Form.BROADCAST:
        return vectors * bits
    # two vectors share an exchange: the step of distance 2 ** b leaves at most 2 ** b rows
    rows_of_results = blocks(last, lanes)
    return (
        vectors // last * sum(rows * sum(min(count, 1 << b) for b in range(bits)) for _, rows, count in rows_of_results)
    )
