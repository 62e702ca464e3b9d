"""`python -m rayctsl.export`; nobody imports this file."""

from rayctsl.commands.export import main

if __name__ == "__main__":
    raise SystemExit(main())
