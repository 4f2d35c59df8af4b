"""Errors of the drafters.

    DrafterError
    ├── UnknownSessionError     a session was extended or asked before it was opened
    ├── DrafterConfigError      a method or parameter that cannot be
    │   └── DatastoreError      a datastore that is corrupt, or made for another tokenizer
    └── CorpusError             text for a datastore that cannot be read

Every constructor passes its positional arguments on, so that errors survive pickling.
"""

from __future__ import annotations


class DrafterError(Exception):
    """Base of all errors of this package."""


class UnknownSessionError(DrafterError):
    """A session was extended or asked for a draft before it was opened."""


class DrafterConfigError(DrafterError, ValueError):
    """A drafter was configured with an unknown method, an unknown parameter or a bad value."""


class DatastoreError(DrafterConfigError):
    """A datastore is no datastore, is corrupt, or was made for another tokenizer."""


class CorpusError(DrafterError):
    """Text that a datastore is to be built from cannot be read, or there is none."""
