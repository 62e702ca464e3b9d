"""`python -m rayctsl.data`; nobody imports this file."""

from rayctsl.commands.data import main

if __name__ == "__main__":
    raise SystemExit(main())
