"""Going on with a file that its writer left unfinished."""
