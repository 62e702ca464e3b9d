"""`python -m rayctsl.push`; nobody imports this file."""

from rayctsl.commands.push import main

if __name__ == "__main__":
    raise SystemExit(main())
