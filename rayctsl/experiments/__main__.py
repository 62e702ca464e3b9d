"""`python -m rayctsl.experiments`; nobody imports this file."""

from rayctsl.commands.experiments import main

if __name__ == "__main__":
    raise SystemExit(main())
