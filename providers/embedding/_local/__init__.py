"""What models in this process share: threads and batches, sessions, and the graph of BERT."""
