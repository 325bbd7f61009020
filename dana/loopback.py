"""What servers on loopback check: pages of other sites and other accounts of this machine reach them."""

from __future__ import annotations

import re

HOST = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?")
"""Names that no other site can rebind; any port, as a tunnel of ssh may have another one than the server."""

MAX_CONNECTIONS = 64
"""More than browsers and Prometheus open, and far fewer than the files that a process may have open."""
