"""Settings shared by every test."""

from hypothesis import HealthCheck, settings

# How long an example takes depends on who else uses the machine: it is no evidence of a fault.
settings.register_profile("futurex", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("futurex")
