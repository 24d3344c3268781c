"""The alert rules and the dashboard: what they name exists, and each alert fires in its case."""
