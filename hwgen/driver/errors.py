"""What a driver raises of a board."""


class BoardError(RuntimeError):
    """The board is not there, is another one, refuses an access, or does not come to an end."""


class MachineHang(BoardError):
    """The board is busy, its pages come, and nothing has moved for longer than its work can take."""
