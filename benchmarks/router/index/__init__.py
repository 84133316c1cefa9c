"""The block index beside Dynamo's tree and indexer."""
