"""The router's request path without sockets: for the compiler to see what is usual there, and to time it."""
