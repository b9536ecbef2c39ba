"""Text in and out: tokenizer, chat template, detokenizer, stop strings. Front side; no torch, no engine."""
