"""`python -m rayctsl.demo`; nobody imports this file."""

from rayctsl.commands.demo import main

if __name__ == "__main__":
    raise SystemExit(main())
