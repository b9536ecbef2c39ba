"""Batching rules compared: the same requests through static and continuous batches, measured or in virtual time."""
