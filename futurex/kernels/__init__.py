"""Kernels: backends that claim ops. Each knows shapes and buffers, not trees of other ops."""
