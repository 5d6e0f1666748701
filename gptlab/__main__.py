"""`python -m gptlab`."""

import sys

from gptlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
