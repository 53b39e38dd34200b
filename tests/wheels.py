"""Packages as pip installs them, made without a network and without a build tool."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path


def install(site: Path, name: str, files: Mapping[str, str], points: Mapping[str, Mapping[str, str]]) -> None:
    """Install a package with these files and entry points into a folder."""
    site.mkdir(exist_ok=True)
    made = wheel(site.parent, name, files, points)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(made)], check=True)


def wheel(folder: Path, name: str, files: Mapping[str, str], points: Mapping[str, Mapping[str, str]]) -> Path:
    """The package, as a build makes it."""
    info = f"{name}-1.0.dist-info"
    written = "\n".join(f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in some.items()) for group, some in points.items())
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": written + "\n",
    }
    record = "".join(f"{path},sha256={digest(text)},{len(text.encode())}\n" for path, text in files.items())
    made = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return made


def digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
