"""The static site: pages of documents, versions, the machine and the exercises, laid out for Sphinx."""
