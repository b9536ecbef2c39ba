"""HTTP and the command line. Nothing imports this but the launcher."""
