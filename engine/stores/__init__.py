"""What must outlive the process, in SQLite files. Nothing pure imports it; it is handed in behind a protocol."""
