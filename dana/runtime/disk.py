"""The disk: whether an error is a lack of room there.

In: errors. Out: what they say of it. It writes nothing.
"""

from __future__ import annotations

import errno


def lacks_room(error: BaseException | None) -> OSError | None:
    """The lack of room, or of a quota, that an error is or comes from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None
