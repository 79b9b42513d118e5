"""The same comparison at several sizes: whether a lead grows or shrinks."""
