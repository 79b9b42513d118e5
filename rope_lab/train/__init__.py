"""Training one run: settings, data, model, loop, and the folder that records it."""
