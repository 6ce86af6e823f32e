"""Runs the command line of whatever kopf this interpreter has, with the libraries of another environment.

So, the same client libraries serve kopf-rs and the original, which are installed apart from them.
Usage: python launch.py SITE-PACKAGES run ...
"""

import sys

# In the end: the interpreter's own kopf comes first.
sys.path.append(sys.argv.pop(1))

from kopf.cli import main

if __name__ == "__main__":
    main()
