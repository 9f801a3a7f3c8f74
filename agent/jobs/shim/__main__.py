"""`python -I -S __main__.py ATTEMPT_DIR`: runs the shim of that attempt; status 0 once the exit record is written.

Invariant: everything it will ever need is imported before it does anything, so an upgrade under its feet changes nothing.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from agent.jobs.shim.attempt import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv))
