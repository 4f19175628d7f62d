"""Tables: from a solution to the bytes that routers pull, and from one table to the next. Pure; knows no sentences."""
