"""What an engine counts, noun by noun: histograms, requests, steps, tenants, tiers."""
