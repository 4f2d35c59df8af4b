"""Errors of the policy service.

    PolicyError
    ├── PolicyConfigError       an unknown learner, arm or parameter, or a value out of range
    ├── StoreUnavailableError   the store did not answer; try again later
    ├── ExportError             an export that cannot be read, or is of another model
    ├── StoreSchemaError        the store holds data of another schema; nothing was written
    └── DecisionLogError        a decision log is missing, corrupt or of another version

Every constructor passes its positional arguments on, so that errors survive pickling.
"""

from __future__ import annotations


class PolicyError(Exception):
    """Base of all errors of this package."""


class PolicyConfigError(PolicyError, ValueError):
    """An unknown learner, arm or parameter, or a value out of range."""


class StoreUnavailableError(PolicyError):
    """The store did not answer; what was not acknowledged is sent again later."""


class StoreSchemaError(PolicyError):
    """The store holds data of a schema this version does not know; nothing was written."""


class ExportError(PolicyError):
    """An export of counts that cannot be used: corrupt, newer, or of another target model."""


class DecisionLogError(PolicyError):
    """A decision log that cannot be read: missing, corrupt, or of another version."""
