"""The application: asynchronous, and free of gRPC, HTTP, SQL and vendor types."""
