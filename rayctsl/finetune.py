"""`python -m rayctsl.finetune`; nobody imports this file."""

from rayctsl.commands.finetune import main

if __name__ == "__main__":
    raise SystemExit(main())
