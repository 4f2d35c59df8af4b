"""Write the configuration into the chart's ``values.schema.json``, so that Helm checks it.

``python -m scripts.chart_schema`` after a change of the configuration; a test sees to it. What the
chart sets itself is left out, and what is secret: values with it are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster.config import SystemConfig

PATH = Path(__file__).resolve().parent.parent / "k8s" / "chart" / "values.schema.json"
LEFT_OUT = {
    "SystemConfig": ("host", "port", "cache_dir", "state_dir", "drain_timeout_s", "ray"),
    "MetricsConfig": ("host", "port"),
    "IngressConfig": ("api_keys", "api_keys_file"),
    "RedisConfig": (
        *("url", "username", "password", "password_file", "tls_ca_file"),
        "sentinel_password",
    ),
}
"""What the chart sets, or what would be written into the cluster for all to read."""
_PREFIX = "config."


def with_config(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the chart's schema with the configuration as it is now."""
    config = SystemConfig.model_json_schema(ref_template="#/$defs/" + _PREFIX + "{model}")
    models: dict[str, Any] = config.pop("$defs")
    models["SystemConfig"] = config
    for name, keys in LEFT_OUT.items():
        for key in keys:
            models[name]["properties"].pop(key, None)
    own = {name: body for name, body in schema["$defs"].items() if not name.startswith(_PREFIX)}
    used = {_PREFIX + name: _plain(body) for name, body in sorted(models.items())}
    del used[_PREFIX + "RayConfig"]
    return {**schema, "$defs": {**own, **used}}


def _plain(value: Any, is_schema: bool = True) -> Any:
    """Return a schema without titles and defaults, which say where this machine keeps things."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    dropped = ("title", "default", "format") if is_schema else ()
    return {
        key: _plain(item, is_schema=not (is_schema and key == "properties"))
        for key, item in value.items()
        if key not in dropped
    }


def main() -> None:
    """Rewrite the file."""
    schema = json.loads(PATH.read_text())
    PATH.write_text(json.dumps(with_config(schema), indent=1) + "\n")


if __name__ == "__main__":
    main()
