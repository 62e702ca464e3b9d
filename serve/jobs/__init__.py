"""Fine-tuning jobs that are never lost: the durable store, the workers on Ray, and the dispatcher between them."""
