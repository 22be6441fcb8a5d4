import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ExactlyOnce {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.length > 0 ? arguments[0] : "127.0.0.1:9092");
        settings.put("group.id", "invoices-java");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("transactional.id", "invoices-java-1");
        var in = new StringDeserializer();
        var out = new StringSerializer();
        int count = 0;
        try (var consumer = new KafkaConsumer<String, String>(settings, in, in);
                var producer = new KafkaProducer<String, String>(settings, out, out)) {
            consumer.subscribe(List.of("orders"));
            producer.initTransactions();
            ConsumerRecords<String, String> records;
            while (!(records = consumer.poll(Duration.ofSeconds(10))).isEmpty()) {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (ConsumerRecord<String, String> each : records) {
                    producer.send(new ProducerRecord<>("invoices", each.key(), "invoice for " + each.value()));
                    positions.put(
                            new TopicPartition(each.topic(), each.partition()),
                            new OffsetAndMetadata(each.offset() + 1));
                }
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                producer.commitTransaction();
                count += records.count();
            }
        }
        System.out.println(count + " invoices, each exactly once");
    }
}
