"""Typed wrappers of the C core, one module per kernel noun; nothing else imports the extension."""
