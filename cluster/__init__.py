"""Cluster: turns one configuration into a running system; nothing else imports it."""

__version__ = "0.1.0"
__all__ = ["__version__"]
