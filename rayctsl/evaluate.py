"""`python -m rayctsl.evaluate`; nobody imports this file."""

from rayctsl.commands.evaluate import main

if __name__ == "__main__":
    raise SystemExit(main())
