"""`python -m tidemill` is the command `tidemill`."""

import sys

try:
    from tidemill.cli import main
except KeyboardInterrupt:  # Ctrl-C during the start
    sys.exit(130)

sys.exit(main())
