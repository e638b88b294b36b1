"""python -m crt, for launchers that start modules."""

import sys

from crt.cli import main

sys.exit(main())
