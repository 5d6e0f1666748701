"""What reaches a layer from further back than the layer below: values, keys, embeddings, the stream as it was."""
