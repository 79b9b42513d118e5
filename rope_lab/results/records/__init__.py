"""Runs as recorded: read, checked, kept, and grouped into setups whose runs may be compared."""
