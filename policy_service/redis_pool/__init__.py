"""Counters in Redis: addresses, connections, schema, scripts, the store."""
