"""`python -m rayctsl.train`; nobody imports this file."""

from rayctsl.commands.train import main

if __name__ == "__main__":
    raise SystemExit(main())
