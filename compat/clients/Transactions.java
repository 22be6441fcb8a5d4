// Kafka's own transactional producer: some transactions are committed, some aborted, one is empty, an
// input is copied together with its offsets, a second producer fences the first, and one producer
// oversleeps its timeout. Prints a line for each thing that it saw.
// Run as: java -cp JARS Transactions.java ADDRESS TOPIC

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Transactions {
  private static final int RECORDS = 20;
  private static String address;
  private static String topic;

  public static void main(String[] words) throws Exception {
    address = words[0];
    topic = words[1];
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
      admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1),
          new NewTopic(topic + "-copied", 2, (short) 1))).all().get();
      KafkaProducer<String, String> first = producer(topic, 60_000);
      transaction(first, "committed", true);
      transaction(first, "aborted", false);
      first.beginTransaction();
      first.commitTransaction();
      transaction(first, "again", true);
      copy();
      fence(first);
      oversleep();
      System.out.println("ends " + ends(admin, IsolationLevel.READ_COMMITTED)
          + " of " + ends(admin, IsolationLevel.READ_UNCOMMITTED));
      System.out.println("input " + committed(topic));
      System.out.println("output " + committed(topic + "-copied"));
      System.out.println("offsets " + new java.util.TreeMap<>(offsets(admin)));
    }
  }

  private static KafkaProducer<String, String> producer(String id, int timeoutMs) {
    KafkaProducer<String, String> made = new KafkaProducer<>(Map.of(
        "bootstrap.servers", address, "transactional.id", id,
        "transaction.timeout.ms", timeoutMs, "delivery.timeout.ms", timeoutMs,
        "request.timeout.ms", Math.min(timeoutMs, 30_000), "linger.ms", 0),
        new StringSerializer(), new StringSerializer());
    made.initTransactions();
    return made;
  }

  private static void transaction(KafkaProducer<String, String> producer, String name, boolean commits) {
    producer.beginTransaction();
    for (int number = 0; number < RECORDS; number++) {
      producer.send(new ProducerRecord<>(topic, number % 2, null, name + "-" + number));
    }
    if (commits) {
      producer.commitTransaction();
    } else {
      producer.flush();
      producer.abortTransaction();
    }
  }

  private static KafkaConsumer<String, String> consumer(String group) {
    return new KafkaConsumer<>(Map.of(
        "bootstrap.servers", address, "group.id", group, "isolation.level", "read_committed",
        "auto.offset.reset", "earliest", "enable.auto.commit", "false"),
        new StringDeserializer(), new StringDeserializer());
  }

  /** The first transaction is aborted: its offsets must not count. */
  private static void copy() {
    try (KafkaConsumer<String, String> consumer = consumer(topic);
        KafkaProducer<String, String> producer = producer(topic + "-copier", 60_000)) {
      consumer.subscribe(List.of(topic));
      boolean commits = false;
      for (int count = 0; count < 2 * RECORDS; ) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
        if (records.isEmpty()) {
          continue;
        }
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<String, String> each : records) {
          producer.send(new ProducerRecord<>(topic + "-copied", each.partition(), null, each.value()));
          positions.put(new TopicPartition(topic, each.partition()),
              new OffsetAndMetadata(each.offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        if (commits) {
          producer.commitTransaction();
          count += records.count();
        } else {
          producer.abortTransaction();
          System.out.println("committed after an abort " + consumer.committed(consumer.assignment())
              .values().stream().allMatch(each -> each == null));
          consumer.seekToBeginning(consumer.assignment());
          commits = true;
        }
      }
    }
  }

  private static void fence(KafkaProducer<String, String> first) throws Exception {
    first.beginTransaction();
    first.send(new ProducerRecord<>(topic, 0, null, "lost")).get();
    try (KafkaProducer<String, String> second = producer(topic, 60_000)) {
      try {
        first.commitTransaction();
        System.out.println("a fenced producer committed");
      } catch (RuntimeException error) {
        System.out.println("fenced " + error.getClass().getSimpleName());
      }
      transaction(second, "second", true);
    }
    first.close(Duration.ZERO);
  }

  private static void oversleep() throws Exception {
    KafkaProducer<String, String> slow = producer(topic + "-slow", 1_000);
    slow.beginTransaction();
    slow.send(new ProducerRecord<>(topic, 1, null, "slow")).get();
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
      String state = "";
      for (int turn = 0; turn < 400 && !state.equals("CompleteAbort"); turn++) {
        Thread.sleep(50);
        state = admin.describeTransactions(List.of(topic + "-slow")).description(topic + "-slow")
            .get().state().toString();
      }
      System.out.println("overslept " + state);
    }
    try {
      slow.commitTransaction();
      System.out.println("an overslept transaction was committed");
    } catch (RuntimeException error) {
      System.out.println("late " + error.getClass().getSimpleName());
    }
    slow.close(Duration.ZERO);
  }

  private static List<Long> ends(Admin admin, IsolationLevel level)
      throws ExecutionException, InterruptedException {
    List<Long> found = new ArrayList<>();
    for (int number = 0; number < 2; number++) {
      TopicPartition place = new TopicPartition(topic, number);
      found.add(admin.listOffsets(Map.of(place, OffsetSpec.latest()), new ListOffsetsOptions(level))
          .partitionResult(place).get().offset());
    }
    return found;
  }

  private static Map<Integer, Long> offsets(Admin admin)
      throws ExecutionException, InterruptedException {
    Map<Integer, Long> found = new HashMap<>();
    admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get()
        .forEach((place, offset) -> found.put(place.partition(), offset.offset()));
    return found;
  }

  private static List<String> committed(String name) {
    List<String> found = new ArrayList<>();
    try (KafkaConsumer<String, String> consumer = consumer(topic + "-reader")) {
      List<TopicPartition> places = List.of(new TopicPartition(name, 0), new TopicPartition(name, 1));
      consumer.assign(places);
      consumer.seekToBeginning(places);
      Map<TopicPartition, Long> ends = consumer.endOffsets(places);
      while (places.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
        consumer.poll(Duration.ofMillis(200)).forEach(each -> found.add(each.value()));
      }
    }
    Collections.sort(found);
    return found;
  }
}
