"""Kubernetes for tests: a fake API server, and the real one."""
