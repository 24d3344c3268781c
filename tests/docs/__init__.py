"""The pages of the documentation: links, paths, commands."""
