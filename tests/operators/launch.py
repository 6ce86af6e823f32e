"""Runs the command line of this interpreter's Kopf with the libraries of another environment.

So kopf-rs and Kopf 1.45 use the same client libraries, which are installed separately from both.
Usage: python launch.py SITE-PACKAGES run ...
"""

import sys

# In the end: the interpreter's own kopf comes first.
sys.path.append(sys.argv.pop(1))

from kopf.cli import main

if __name__ == "__main__":
    main()
