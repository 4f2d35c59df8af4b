"""Where in a YAML text the value at a path stands; pure."""

from __future__ import annotations

from collections.abc import Sequence

import yaml


def line_of(text: str, path: Sequence[str | int]) -> int:
    r"""Return the line, from 1, of the key or item at a path, or of the nearest one above it.

    >>> line_of("a: 1\nb:\n  - c: 2\n  - c: 3\n", ["b", 1, "c"])
    4
    >>> line_of("a: 1\nb:\n  c: 2\n", ["b", "missing"])
    2
    """
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for step in path:
        found = _below(node, step)
        if found is None:
            break
        mark, node = found
        line = mark.start_mark.line + 1
    return line


def _below(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the node that names what stands below a node, and what stands there."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(step)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None
