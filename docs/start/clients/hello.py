import sys

from confluent_kafka import Consumer, Producer

brokers = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": brokers})
producer.produce("greetings", key="python", value="hello from Python")
producer.flush()

consumer = Consumer(
    {"bootstrap.servers": brokers, "group.id": "python", "auto.offset.reset": "earliest"}
)
consumer.subscribe(["greetings"])
seen = 0
own = "none"
while record := consumer.poll(5):
    if record.error():
        raise SystemExit(record.error().str())
    seen += 1
    if record.key() == b"python":
        own = record.value().decode()
print(f"{seen} records, one of them: {own}")
consumer.close()
