"""`python -m draftwerk`: the command line."""

from draftwerk.api.__main__ import main

if __name__ == "__main__":
    main()
