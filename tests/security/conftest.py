"""Makes the modules of this folder importable for its tests, and for nothing else."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
