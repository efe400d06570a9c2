"""`python -m tidemill` is the command `tidemill`."""

import sys

from tidemill.cli import main

sys.exit(main())
