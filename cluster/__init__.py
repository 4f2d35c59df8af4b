"""Cluster: turns one configuration into a running system; nothing else imports it."""
