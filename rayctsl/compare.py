"""`python -m rayctsl.compare`; nobody imports this file."""

from rayctsl.commands.compare import main

if __name__ == "__main__":
    raise SystemExit(main())
