"""A module in the folder of the operator's files."""

VALUE = "from the same folder"
