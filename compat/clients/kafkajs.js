// kafkajs against one bootstrap address: prints a JSON object of what it saw, one member a scenario.
// KAFKAJS_SECURITY has `ssl` and `sasl` as kafkajs takes them, as JSON.
// Run as: NODE_PATH=… node kafkajs.js ADDRESS SCENARIO
"use strict";
const { Kafka, logLevel, CompressionTypes } = require("kafkajs");

const [address, wanted] = process.argv.slice(2);
const security = JSON.parse(process.env.KAFKAJS_SECURITY || "{}");
const client = (clientId) => new Kafka({ clientId, brokers: [address], logLevel: logLevel.NOTHING, ...security });
const kafka = client("compat");

const byPartition = (a, b) => a.partition - b.partition;
const numbers = (count, from = 0) => Array.from({ length: count }, (_, n) => n + from);
const text = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString());

async function withAdmin(body) {
  const admin = kafka.admin();
  await admin.connect();
  try { return await body(admin); } finally { await admin.disconnect(); }
}

const created = (topic, numPartitions = 1, configEntries = []) =>
  withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }));

async function refused(promise) {
  try { return ["answered", await promise]; } catch (error) {
    const inner = error.errors ? error.errors[0] : error;
    return [inner.name, inner.type || inner.message];
  }
}

async function send(topic, messages, options = {}, producing = {}) {
  const producer = kafka.producer(producing);
  await producer.connect();
  try {
    return await producer.send({ topic, messages, ...options });
  } finally { await producer.disconnect(); }
}

// Consumes until `enough` says so of the messages seen, then leaves the group.
async function consume(groupId, topic, enough, { running = {}, started } = {}) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 });
  const seen = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  try {
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        if (!payload.restart) reject(payload.error);
      });
      consumer.run({
        ...running,
        eachMessage: async ({ partition, message }) => {
          seen.push({ partition, offset: message.offset, key: text(message.key),
            value: text(message.value), headers: headersOf(message) });
          if (enough(seen, consumer)) resolve();
        },
      }).then(() => started && started(consumer, seen, resolve)).catch(reject);
    });
  } finally { await consumer.disconnect(); }
  return seen;
}

const headersOf = (message) => Object.fromEntries(
  Object.entries(message.headers || {}).map(([name, value]) => [name, text(value)]));

const sorted = (seen) => seen.map((one) => JSON.stringify(one)).sort();

async function administers() {
  return withAdmin(async (admin) => {
    const topic = "js-admin";
    const topics = [{ topic, numPartitions: 3, configEntries: [{ name: "retention.ms", value: "86400000" }] }];
    const made = await admin.createTopics({ topics });
    const again = await admin.createTopics({ topics });
    const listed = (await admin.listTopics()).includes(topic);
    const described = await admin.fetchTopicMetadata({ topics: [topic] });
    described.topics[0].partitions.sort((a, b) => a.partitionId - b.partitionId);
    const configs = await admin.describeConfigs({ includeSynonyms: false,
      resources: [{ type: 2, name: topic, configNames: ["retention.ms", "cleanup.policy"] }] });
    const entries = configs.resources[0].configEntries
      .map(({ configName, configValue, isDefault, readOnly }) => ({ configName, configValue, isDefault, readOnly }))
      .sort((a, b) => a.configName.localeCompare(b.configName));
    await admin.alterConfigs({ validateOnly: false,
      resources: [{ type: 2, name: topic, configEntries: [{ name: "retention.ms", value: "7200000" }] }] });
    const altered = (await admin.describeConfigs({ includeSynonyms: false,
      resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }] })).resources[0].configEntries[0].configValue;
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
    const wider = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    const fewer = await refused(admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] }));
    const cluster = await admin.describeCluster();
    await admin.deleteTopics({ topics: [topic] });
    let gone = false;
    for (let turn = 0; turn < 100 && !gone; turn++) {  // a server may list it a moment longer
      gone = !(await admin.listTopics()).includes(topic);
      if (!gone) await new Promise((go) => setTimeout(go, 50));
    }
    return { made, again, listed, described, entries, altered, wider, fewer, gone,
      brokers: cluster.brokers.length, controller: cluster.controller };
  });
}

async function compresses() {
  await created("js-gzip", 2);
  const messages = numbers(200).map((n) => ({ key: `key-${n}`, value: `value-${n}`.repeat(20),
    headers: { number: String(n), kind: "even odd".split(" ")[n % 2] } }));
  const sent = await send("js-gzip", messages, { compression: CompressionTypes.GZIP, acks: -1 });
  const seen = await consume("js-gzip", "js-gzip", (all) => all.length === messages.length);
  return { sent: sent.sort(byPartition), seen: sorted(seen) };
}

async function sendsIdempotently() {
  await created("js-idempotent", 1);
  const producing = { idempotent: true, maxInFlightRequests: 1 };
  const sent = await send("js-idempotent", numbers(20).map((n) => ({ value: `${n}` })), {}, producing);
  const ends = await withAdmin((admin) => admin.fetchTopicOffsets("js-idempotent"));
  return { sent, ends };
}

async function sharesAGroup() {
  const topic = "js-shared";
  await created(topic, 4);
  const owned = new Map();
  const owners = numbers(4).map(() => new Set());
  const seen = new Set();
  const members = ["first", "second"].map((clientId) => client(clientId)
    .consumer({ groupId: topic, heartbeatInterval: 300, maxWaitTimeInMs: 200 }));
  const settled = new Promise((resolve) => members.forEach((member, index) => {
    member.on(member.events.GROUP_JOIN, ({ payload }) => {
      owned.set(index, payload.memberAssignment[topic] || []);
      const all = [...owned.values()].flat();
      if (owned.size === 2 && all.length === 4 && new Set(all).size === 4) resolve(payload.groupProtocol);
    });
  }));
  for (const [index, member] of members.entries()) {
    await member.connect();
    await member.subscribe({ topics: [topic], fromBeginning: true });
    await member.run({ eachMessage: async ({ partition, message }) => {
      owners[partition].add(index);
      seen.add(message.value.toString());
      if (seen.size === 40) all.resolve();
    } });
  }
  const all = {};
  const complete = new Promise((resolve) => { all.resolve = resolve; });
  const protocol = await settled;
  await send(topic, numbers(40).map((n) => ({ value: `${n}`, partition: n % 4 })));
  await complete;
  const group = await withAdmin((admin) => admin.describeGroups([topic]));
  const listed = (await withAdmin((admin) => admin.listGroups())).groups.filter((one) => one.groupId === topic);
  const { errorCode, protocolType, state, protocol: named } = group.groups[0];
  const shares = [...owned.values()].map((some) => some.length).sort();
  const busy = await withAdmin((admin) => refused(admin.deleteGroups([topic])));
  const rejoined = new Promise((resolve) => members[1].on(members[1].events.GROUP_JOIN,
    ({ payload }) => resolve((payload.memberAssignment[topic] || []).length)));
  await members[0].disconnect();
  const inherited = await rejoined;
  await members[1].disconnect();
  const empty = await withAdmin((admin) => admin.describeGroups([topic]));
  const deleted = await withAdmin((admin) => admin.deleteGroups([topic]));
  const dead = await withAdmin((admin) => admin.describeGroups([topic]));
  return { protocol, shares, group: { errorCode, protocolType, state, named, members: group.groups[0].members.length },
    listed, owners: owners.map((some) => some.size), busy, inherited, empty: empty.groups[0].state,
    deleted, dead: dead.groups[0].state };
}

async function seeks() {
  await created("js-seek", 1);
  await send("js-seek", numbers(10).map((n) => ({ value: `${n}` })));
  const seen = await consume("js-seek", "js-seek", (all) => all[all.length - 1].offset === "9" && all.length > 1, {
    running: { autoCommit: false },
    started: async (consumer) => consumer.seek({ topic: "js-seek", partition: 0, offset: "6" }),
  });
  return seen.slice(-4).map((one) => one.offset);
}

async function pausesAndResumes() {
  const topic = "js-pause";
  await created(topic, 2);
  await send(topic, numbers(10).map((n) => ({ value: `${n}`, partition: n % 2 })));
  const during = [];
  const seen = await consume(topic, topic, (all, consumer) => {
    const first = [{ topic, partitions: [all[0].partition] }];
    if (all.length === 1) consumer.pause(first);
    if (all.length === 6) {
      during.push(...consumer.paused().map(({ partitions }) => partitions.length));
      during.push(all.slice(1).every((one) => one.partition !== all[0].partition));
      consumer.resume(first);
    }
    return all.length === 10;
  });
  return { during, seen: sorted(seen) };
}

async function commits() {
  const topic = "js-commit";
  await created(topic, 2);
  await send(topic, numbers(20).map((n) => ({ value: `${n}`, partition: n % 2 })));
  const offsets = [{ topic, partition: 0, offset: "7", metadata: "seven" }, { topic, partition: 1, offset: "3" }];
  await consume(topic, topic, () => false, { running: { autoCommit: false },
    started: async (consumer, seen, resolve) => {
      await until(() => seen.length === 20);
      await consumer.commitOffsets(offsets);
      resolve();
    } });
  const again = await consume(topic, topic, (all) => all.length === 10);
  return withAdmin(async (admin) => {
    const fetched = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
    await admin.resetOffsets({ groupId: topic, topic, earliest: true });
    const reset = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
    await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 1, offset: "4" }] });
    const set = await admin.fetchOffsets({ groupId: topic, topics: [topic], resolveOffsets: true });
    const nobody = await admin.fetchOffsets({ groupId: "js-nobody", topics: [topic] });
    const resumed = await consume(topic, topic, (all) => all.length === 16);
    return { again: sorted(again), fetched: tidy(fetched), reset: tidy(reset),
      set: tidy(set), nobody: tidy(nobody), resumed: sorted(resumed) };
  });
}

const tidy = (fetched) => fetched.map(({ topic, partitions }) =>
  ({ topic, partitions: partitions.sort(byPartition) }));

async function until(condition) {
  const end = Date.now() + 30000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`never came: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function asksForOffsets() {
  const topic = "js-offsets";
  await created(topic, 1, [{ name: "retention.ms", value: "-1" }]);
  const start = 1700000000000;
  await send(topic, numbers(10).map((n) => ({ value: `${n}`, timestamp: String(start + n * 1000) })));
  return withAdmin(async (admin) => {
    const ends = await admin.fetchTopicOffsets(topic);
    const at = [];
    for (const timestamp of [0, start + 4000, start + 4001, start + 99000]) {
      at.push(await admin.fetchTopicOffsetsByTimestamp(topic, timestamp));
    }
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] });
    const cut = await admin.fetchTopicOffsets(topic);
    const beyond = await refused(admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "50" }] }));
    return { ends, at, cut, beyond };
  });
}

async function committedValues(topic) {
  const ends = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
  const left = ends.filter(({ high }) => Number(high) > 0).length;
  if (!left) return [];
  const seen = [];
  const last = `last-${Date.now()}`;
  await send(topic, ends.map(({ partition }) => ({ value: last, partition })));
  const consumer = kafka.consumer({ groupId: `${topic}-${last}`, maxWaitTimeInMs: 200, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let ended = 0;
  await new Promise((resolve) => consumer.run({ eachMessage: async ({ message }) => {
    if (text(message.value) !== last) seen.push(text(message.value));
    else if (++ended === ends.length) resolve();
  } }));
  await consumer.disconnect();
  return seen.sort();
}

async function transacts() {
  const topic = "js-transactions";
  await created(topic, 2);
  await created("js-first");
  await send("js-first", [{ value: "first" }]);
  await consume("js-first", "js-first", (all) => all.length === 1); // coordinators of groups are there
  const producing = { transactionalId: topic, idempotent: true, maxInFlightRequests: 1 };
  const producer = kafka.producer(producing);
  await producer.connect();
  for (const name of ["committed", "aborted", "again"]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: numbers(20).map((n) => ({ value: `${name}-${n}`, partition: n % 2 })) });
    await transaction.sendOffsets({ consumerGroupId: topic,
      topics: [{ topic, partitions: [{ partition: 0, offset: name === "aborted" ? "99" : "10" }] }] });
    await (name === "aborted" ? transaction.abort() : transaction.commit());
  }
  const open = await producer.transaction();
  await open.send({ topic, messages: [{ value: "lost", partition: 0 }] });
  const second = kafka.producer(producing);
  await second.connect();
  const begun = await second.transaction();
  const fenced = await refused(open.commit());
  await begun.send({ topic, messages: [{ value: "second", partition: 1 }] });
  await begun.commit();
  await second.disconnect();
  await producer.disconnect();
  const offsets = await withAdmin((admin) => admin.fetchOffsets({ groupId: topic, topics: [topic] }));
  return { values: await committedValues(topic), fenced: fenced[0] !== "answered", offsets: tidy(offsets) };
}

async function isRefused() {
  return {
    name: await refused(created("js/slash")),
    partitions: await refused(created("js-none", 0)),
    config: await refused(created("js-config", 1, [{ name: "retention.ms", value: "soon" }])),
  };
}

const scenarios = { administers, compresses, sendsIdempotently, sharesAGroup, seeks, pausesAndResumes,
  commits, asksForOffsets, isRefused, transacts };

scenarios[wanted]().then(
  (seen) => { console.log(JSON.stringify(seen)); process.exit(0); },
  (error) => { console.error(error.stack); process.exit(1); });
