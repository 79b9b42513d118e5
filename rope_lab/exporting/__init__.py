"""Schemes as files that import no rope_lab, for torch and for transformers."""
