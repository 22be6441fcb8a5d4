const { Kafka } = require("kafkajs");

const brokers = [process.argv[2] || "127.0.0.1:9092"];
const kafka = new Kafka({ clientId: "invoices", brokers });
const consumer = kafka.consumer({ groupId: "invoices-js", readUncommitted: false });
const producer = kafka.producer({
  transactionalId: "invoices-js-1",
  idempotent: true,
  maxInFlightRequests: 1,
});
let count = 0;
let timer;

async function end() {
  console.log(`${count} invoices, each exactly once`);
  await consumer.disconnect();
  await producer.disconnect();
}

async function main() {
  await consumer.connect();
  await producer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  timer = setTimeout(end, 10000);
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      const transaction = await producer.transaction();
      try {
        const value = `invoice for ${message.value}`;
        await transaction.send({ topic: "invoices", messages: [{ key: message.key, value }] });
        const offset = (BigInt(message.offset) + 1n).toString();
        await transaction.sendOffsets({
          consumerGroupId: "invoices-js",
          topics: [{ topic, partitions: [{ partition, offset }] }],
        });
        await transaction.commit();
      } catch (fault) {
        await transaction.abort();
        throw fault;
      }
      count += 1;
      clearTimeout(timer);
      timer = setTimeout(end, 10000);
    },
  });
}

main();
