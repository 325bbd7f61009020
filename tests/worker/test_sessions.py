"""The sessions that a worker counts."""

from __future__ import annotations

import os
import select

from dana.worker.activity import Activity
from dana.worker.sessions import Sessions


def test_a_session_that_has_ended_does_not_count_before_its_signal_came() -> None:
    sessions = Sessions(max_sessions=1, total_bytes=1 << 40, caches=())
    waiting, hold = os.pipe()
    activity = Activity()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(hold)
        os.read(waiting, 1)
        os._exit(0)
    os.close(waiting)
    sessions.add(child, activity)
    assert not sessions.room()
    os.close(hold)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert sessions.room()
    assert len(sessions) == 0


def test_a_session_takes_up_a_request_or_ends_but_not_both() -> None:
    activity = Activity()
    assert not activity.end_if_idle()  # it has had no request
    activity.idle()
    assert activity.busy()
    assert not activity.end_if_idle()
    activity.idle()
    activity.idle()
    assert activity.end_if_idle()
    assert not activity.busy()
    assert activity.idle_since is not None  # on its way out it takes nobody's place
    assert select.select([activity], [], [], 0)[0]
    activity.close_session_ends()
    activity.request_end()  # it has ended already
    activity.close()
