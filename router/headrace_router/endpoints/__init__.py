"""Where engines are: Services, names, probes, round trips."""
