"""What a tenant may see of what was learnt: its own contexts, and those that all share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy_service.client import context_tenant


def visible_to(tenant: str, learnt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dump of the Policy without the contexts of other tenants."""
    return {
        name: {
            context: cells
            for context, cells in value.items()
            if context_tenant(context) in ("", tenant)
        }
        if name in ("contexts", "cells")
        else value
        for name, value in learnt.items()
    }
