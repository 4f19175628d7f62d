"""HTTP/1.1 as bytes: heads, header rules, paths; pure."""
