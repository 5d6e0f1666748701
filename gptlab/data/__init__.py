"""Text, token ids and batches. Nothing here imports torch or tiktoken before it is used."""
