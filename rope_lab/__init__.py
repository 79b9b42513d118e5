"""A lab bench for comparing how transformers are told position."""
