"""The sessions that a worker counts."""

from __future__ import annotations

import os

from dana.runtime.attendance import Attendance
from dana.runtime.sessions import Sessions


def test_a_session_that_has_ended_does_not_count_before_its_signal_came() -> None:
    sessions = Sessions(max_sessions=1, total_bytes=1 << 40, caches=())
    waiting, hold = os.pipe()
    attendance = Attendance()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(hold)
        os.read(waiting, 1)
        os._exit(0)
    os.close(waiting)
    sessions.add(child, attendance)
    assert not sessions.room()
    os.close(hold)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert sessions.room()
    assert len(sessions) == 0
