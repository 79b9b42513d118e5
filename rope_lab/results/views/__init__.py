"""Results as tables, sentences, charts and pages; nothing here computes a statistic."""
