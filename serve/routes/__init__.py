"""The routes, one file per thing they are about."""
