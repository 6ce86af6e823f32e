"""What users may use and the framework itself never does: hierarchies, events, the test runner."""
