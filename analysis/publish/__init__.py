"""Tables, pictures, documents and notebooks from everything below."""
