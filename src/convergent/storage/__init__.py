"""What is kept on disk: files that are whole or not there, folders that belong to one process, inputs known by their content."""
