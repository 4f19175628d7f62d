"""Start, serve, end; the admin pages."""
