"""Several processes as one router: who starts them, what they share, and the pages of all."""
