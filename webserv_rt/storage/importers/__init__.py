"""Where bases come from: one module per kind of source, all writing through one `TreeWriter`."""
