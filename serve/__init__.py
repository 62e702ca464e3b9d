"""The service: initializations to download and fine-tuning over HTTP. Training code is in `rayctsl`, HTTP is here."""
