"""`python -m rayctsl.bench`; nobody imports this file."""

from rayctsl.commands.bench import main

if __name__ == "__main__":
    raise SystemExit(main())
