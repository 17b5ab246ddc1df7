"""The work that the stacks do: ``cases`` says what, one module per stack says how."""
