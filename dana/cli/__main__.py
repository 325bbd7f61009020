"""``python -m dana.cli``: how the supervisor starts the worker, without depending on an installed script."""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main())
