"""Rows of windows for operators with state."""

from engine.rows import Rows, rows_of


def one_slot(slot: int, start: int, count: int, certain: int | None = None) -> Rows:
    """A window with one span; by default all of its rows are certain."""
    return rows_of([(slot, start, count, count if certain is None else certain)])


def chunks_of(total: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, count) of chunks of the given sizes, repeated until `total` rows are covered."""
    pieces, start, turn = [], 0, 0
    while start < total:
        count = min(sizes[turn % len(sizes)], total - start)
        pieces.append((start, count))
        start, turn = start + count, turn + 1
    return pieces


CHUNKINGS = ((1,), (2, 5), (16,), (3, 1, 1, 40), (200,))
"""Ways to cut a text; each must give the bits of the first."""
