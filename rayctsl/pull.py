"""`python -m rayctsl.pull`; nobody imports this file."""

from rayctsl.commands.pull import main

if __name__ == "__main__":
    raise SystemExit(main())
