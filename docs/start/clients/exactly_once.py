import sys

from confluent_kafka import Consumer, Producer

brokers = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

consumer = Consumer(
    {
        "bootstrap.servers": brokers,
        "group.id": "invoices",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
consumer.subscribe(["orders"])
producer = Producer({"bootstrap.servers": brokers, "transactional.id": "invoices-1"})
producer.init_transactions()

count = 0
while records := consumer.consume(100, timeout=10):
    producer.begin_transaction()
    for record in records:
        if record.error():
            raise SystemExit(record.error().str())
        producer.produce("invoices", b"invoice for " + record.value(), record.key())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()
    count += len(records)
print(f"{count} invoices, each exactly once")
consumer.close()
