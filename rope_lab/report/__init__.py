"""One HTML page of kept rows or run folders. Reads files, imports no torch."""
