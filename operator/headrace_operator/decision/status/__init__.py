"""Status: conditions, Events, history and figures of a policy, written only when they are news. Pure."""
