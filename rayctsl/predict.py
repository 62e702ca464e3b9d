"""`python -m rayctsl.predict`; nobody imports this file."""

from rayctsl.commands.predict import main

if __name__ == "__main__":
    raise SystemExit(main())
