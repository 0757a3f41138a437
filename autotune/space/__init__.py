"""Search spaces: the legal configurations of a kernel, counted and drawn without ever building their product."""
