"""What drafting with a language model needs beside the model itself."""
