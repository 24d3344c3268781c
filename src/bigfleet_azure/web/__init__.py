"""The HTTP edge: metrics, liveness and readiness."""
