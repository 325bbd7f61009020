"""What a driver raises of a board."""


class BoardError(RuntimeError):
    """The board is not there, is another one, refuses an access, or does not come to an end."""


class BusHang(BoardError):
    """A memory does not answer the board, or still owes it answers."""


class MachineHang(BoardError):
    """The board is busy, its memories answer, and nothing has moved for longer than its work can take."""
