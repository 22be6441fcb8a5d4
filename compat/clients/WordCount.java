// Kafka Streams' word count in the DSL: reads INPUTS (APPLICATION-lines), writes
// APPLICATION-counts, until its standard input ends. It prints its states, what it restored its
// store from, and why a thread of its own ended; another thread follows that one. As Kafka Streams
// has it, no instance leaves its group: the next one waits for the session of the one before to
// end, six seconds.
// Run as: java -cp JARS WordCount.java ADDRESS APPLICATION STATE_FOLDER THREADS
//     [GUARANTEE [INPUT,… [SETTING=VALUE…]]]

import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

public final class WordCount {
  public static void main(String[] words) throws Exception {
    String application = words[1];
    StreamsBuilder builder = new StreamsBuilder();
    String inputs = words.length > 5 ? words[5] : application + "-lines";
    builder.<String, String>stream(Arrays.asList(inputs.split(",")))
        .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
        .groupBy((key, word) -> word)
        .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(application + "-counts", Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings(words));
    streams.setStateListener((now, before) -> System.out.println("state " + now));
    streams.setGlobalStateRestoreListener(new Restored());
    streams.setUncaughtExceptionHandler(WordCount::replace);
    streams.start();
    while (System.in.read() >= 0) { }
    System.out.println("closed " + streams.close(Duration.ofSeconds(30)));
  }

  private static Properties settings(String[] words) {
    Properties settings = new Properties();
    settings.putAll(Map.of(
        StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0],
        StreamsConfig.APPLICATION_ID_CONFIG, words[1],
        StreamsConfig.STATE_DIR_CONFIG, words[2],
        StreamsConfig.NUM_STREAM_THREADS_CONFIG, words[3],
        StreamsConfig.PROCESSING_GUARANTEE_CONFIG, words.length > 4 ? words[4] : StreamsConfig.AT_LEAST_ONCE,
        StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200",
        StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName(),
        StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName(),
        ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, "6000"));
    settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "500");
    for (int index = 6; index < words.length; index++) {
      String[] parts = words[index].split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    return settings;
  }

  private static StreamThreadExceptionResponse replace(Throwable error) {
    Throwable cause = error;
    while (cause.getCause() != null) {
      cause = cause.getCause();
    }
    System.out.println("replaced " + String.valueOf(cause).replace('\n', ' '));
    return StreamThreadExceptionResponse.REPLACE_THREAD;
  }

  private static final class Restored implements StateRestoreListener {
    @Override
    public void onRestoreStart(TopicPartition from, String store, long first, long last) { }

    @Override
    public void onBatchRestored(TopicPartition from, String store, long last, long count) { }

    @Override
    public void onRestoreEnd(TopicPartition from, String store, long total) {
      System.out.println("restored " + from.partition() + " " + total);
    }
  }
}
