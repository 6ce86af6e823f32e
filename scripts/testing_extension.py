"""Install the package with an extension that cargo has built, into the environment of this interpreter.

    testing_extension.py FOLDER

`make test-bindings` and `make test-fast` call it: the extension of the development profile was compiled with
the Rust tests, and shares their dependencies. maturin would compile these again for the extension alone.
"""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[1]


def install(extension: pathlib.Path, site: pathlib.Path) -> None:
    """Replace the package in the folder of installed packages, with its metadata and its entry points."""
    shutil.rmtree(site / "kopf", ignore_errors=True)
    shutil.copytree(
        ROOT / "python" / "kopf", site / "kopf", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    shutil.copy(extension, site / "kopf" / "_kopf.abi3.so")
    for metadata in site.glob("kopf_rs-*.dist-info"):
        shutil.rmtree(metadata)
    command = [sys.executable, "-m", "maturin", "pep517", "write-dist-info"]
    command += ["--metadata-directory", str(site), "--interpreter", sys.executable]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)


def main(folder: str) -> int:
    extension = pathlib.Path(folder) / "lib_kopf.so"
    if not extension.exists():
        print(f"There is no {extension}: cargo build --workspace --lib", file=sys.stderr)
        return 1
    install(extension, pathlib.Path(sysconfig.get_path("platlib")))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
