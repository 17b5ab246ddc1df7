"""Checkpoints, reports and progress of training runs."""
