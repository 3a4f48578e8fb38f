"""A plug-in for fedaudit: one module for each thing that it adds."""
