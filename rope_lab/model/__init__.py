"""The transformer and its position schemes. Imports nothing of the rest of rope_lab."""
