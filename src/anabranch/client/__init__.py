"""A small wire client that moves whole batches and sends admin requests.

For the command line, the pipelines, the console and the test fixture; applications keep the Kafka
client that they have. May use `core`; talks to a cluster only over the wire.
"""
