"""Flags that are no value of the chart, each with the reason; extraArgs can give most."""

EXCUSED = {
    "config": "every setting has a value of its own",
    "state-key": "the key is mounted as a file, which no `kubectl describe` shows",
    "federated-token-file": "the webhook of workload identity gives the variable",
    "transition-timeout": "meant for tests",
    "use-fake-backend": "azureBackend=fake says the same",
    "fake-seed": "the simulated region is for trying out: extraArgs",
    "fake-latency": "the simulated region is for trying out: extraArgs",
    "fake-quota": "the simulated region is for trying out: extraArgs",
    "fake-evict-rate": "the simulated region is for trying out: extraArgs",
    "fake-fail-rate": "the simulated region is for trying out: extraArgs",
    "fake-throttle": "the simulated region is for trying out: extraArgs",
    "fake-faults": "the simulated region is for trying out: extraArgs",
}

BY_VARIABLE = {
    "eviction-token": "BIGFLEET_EVICTION_TOKEN",
    "client-secret": "AZURE_CLIENT_SECRET",
}
"""Secrets, which are never arguments, and the variables that carry them."""
