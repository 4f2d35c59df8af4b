"""Drafters: they propose tokens, on workers of their own."""
