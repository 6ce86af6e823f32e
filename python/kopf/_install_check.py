"""Warning about the distribution `kopf` being installed over this one.

Both distributions are imported as `kopf`, and installers overwrite files without a warning. The last
installed one wins, file by file. Removing one of them damages the other.
"""

from __future__ import annotations

from collections.abc import Sequence


def warn(folder: str) -> None:
    """Warn of the damaged installation, with the commands that repair it."""
    import warnings

    advice = (
        "Python imports kopf-rs now, and it works, but any change of installed packages can break it. "
        "To have only kopf-rs: `pip uninstall -y kopf`, and then install kopf-rs once more from its wheel "
        "file: `pip install --force-reinstall --no-deps kopf_rs-*.whl`. If another package requires `kopf`, "
        "install the metadata-only distribution `kopf`, from the file `kopf-1.45.2+rs.*.whl`, as well."
    )
    text = f"The distributions `kopf` and `kopf-rs` are installed over each other in {folder}. {advice}"
    # 1: this function, 2: the package.
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def is_original_installed(path: Sequence[str]) -> bool:
    """Whether the private packages of the original are in the same folder."""
    from os.path import isdir, join

    return any(isdir(join(folder, "_cogs")) for folder in path)
