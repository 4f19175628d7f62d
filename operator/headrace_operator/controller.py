"""The level-triggered loop that joins loader, decision and publisher."""
