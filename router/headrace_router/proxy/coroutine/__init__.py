"""The form with a task a request, until the callbacks serve."""
