"""Files of the checkout: where it is, and writing that is atomic and leaves an unchanged file alone.

write_if_changed(root() / "regs" / "registers.csv", text)
"""

import os
import tempfile
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError


@cache
def root() -> Path:
    """The top folder of the checkout that contains this package, or the installed data folder."""
    return Path(__file__).resolve().parent.parent


@cache
def in_checkout() -> bool:
    """True if versions are there, or this package is installed without them."""
    return (root() / "kernels").is_dir()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; a file that can't be read is an error naming it."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise AnalysisError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error
    except OSError as error:
        raise AnalysisError(f"{path}: {error.strerror}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write the file so that a reader sees the old content or the new one, never half of it. Creates its folder.

    A link stays: its target is written. So does what is no file, such as /dev/stdout or a pipe, which takes all.
    """
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # names the path, not its copy


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise


def write_if_changed(path: Path, text: str) -> bool:
    """Write the file unless it already holds this text, so that make sees no change. True when it was written."""
    try:
        if path.is_file() and path.read_bytes() == text.encode("utf-8"):
            return False
    except OSError:
        pass
    write_atomically(path, text)
    return True
