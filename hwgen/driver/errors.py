"""Errors of a driver."""


class BoardError(RuntimeError):
    """The board is missing, does not fit the Bundle, rejects an access, or does not finish."""


class BusHang(BoardError):
    """A memory does not answer the board, or still owes it answers."""


class MachineHang(BoardError):
    """The board is busy, its memories answer, and nothing has moved for longer than its work can take."""
