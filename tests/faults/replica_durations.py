"""The durations of the leader election in `replica_operator.py`, in seconds."""

DURATIONS = {"lease_duration": 2, "renew_deadline": 1.2, "retry_period": 0.3, "loss_grace": 0.7}
