"""Azure: real virtual machines through the Azure SDK. The only place that imports `azure`."""
