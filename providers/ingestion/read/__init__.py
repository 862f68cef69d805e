"""Convert files and URLs to text: detect the type, then parse in another process."""
