"""The HTTP front: OpenAI-compatible, holding each request's seed and the tokens passed on."""
