"""`python -m rayctsl.config`; nobody imports this file."""

from rayctsl.commands.config import main

if __name__ == "__main__":
    raise SystemExit(main())
