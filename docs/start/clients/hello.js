const { Kafka, logLevel } = require("kafkajs");

const brokers = [process.argv[2] || "127.0.0.1:9092"];
const kafka = new Kafka({ brokers, logLevel: logLevel.ERROR });

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  const messages = [{ key: "javascript", value: "hello from JavaScript" }];
  await producer.send({ topic: "greetings", messages });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "javascript" });
  await consumer.connect();
  await consumer.subscribe({ topics: ["greetings"], fromBeginning: true });
  let seen = 0;
  let own = "none";
  let quiet;
  const end = new Promise((resolve) => {
    quiet = setTimeout(resolve, 10000);
    consumer.run({
      eachMessage: async ({ message }) => {
        seen += 1;
        if (String(message.key) === "javascript") own = message.value.toString();
        clearTimeout(quiet);
        quiet = setTimeout(resolve, 2000);
      },
    });
  });
  await end;
  await consumer.disconnect();
  console.log(`${seen} records, one of them: ${own}`);
}

main();
