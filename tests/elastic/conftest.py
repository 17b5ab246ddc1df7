"""Workers and this process alike find the programs and faults of these tests as a package of the repository."""

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).parent.parent.parent)
sys.path.insert(0, ROOT)
os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
