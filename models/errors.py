"""Errors of the models.

ModelError              the model cannot be had, or is of an unsupported kind
└── UnknownModelError   there is no model of this name, or none in this folder
"""

from __future__ import annotations


class ModelError(Exception):
    """The model cannot be had, or has layers that are not supported.

    Attributes:
        message: What is wrong, expected and found.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class UnknownModelError(ModelError):
    """There is no model of this name, or none in this folder."""
