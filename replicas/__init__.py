"""Replicas: Ingress and Verifier, the engine that runs the target model."""
