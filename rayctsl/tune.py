"""`python -m rayctsl.tune`; nobody imports this file."""

from rayctsl.commands.tune import main

if __name__ == "__main__":
    raise SystemExit(main())
