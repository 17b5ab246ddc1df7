"""``python -m futurex`` is the command ``futurex``."""

import sys

from futurex.cli.main import main

if __name__ == "__main__":  # worker processes import this file too
    sys.exit(main())
