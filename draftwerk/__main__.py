"""`python -m draftwerk`: the command line."""

import sys

from draftwerk.api.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
