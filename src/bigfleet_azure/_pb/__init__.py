"""The wire format as code, written by `make proto` from proto/. Nothing in this folder is edited by hand."""
