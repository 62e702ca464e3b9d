"""`python -m rayctsl.client`; nobody imports this file."""

from rayctsl.commands.client import main

if __name__ == "__main__":
    raise SystemExit(main())
