"""Figures of the service, measured against itself running on a real port: `python -m serve.bench`."""
