import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.length > 0 ? arguments[0] : "127.0.0.1:9092");
        settings.put("group.id", "java");
        settings.put("auto.offset.reset", "earliest");

        var text = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(settings, text, text)) {
            producer.send(new ProducerRecord<>("greetings", "java", "hello from Java")).get();
        }

        int seen = 0;
        String own = "none";
        var textBack = new StringDeserializer();
        try (var consumer = new KafkaConsumer<String, String>(settings, textBack, textBack)) {
            consumer.subscribe(List.of("greetings"));
            ConsumerRecords<String, String> records;
            while (!(records = consumer.poll(Duration.ofSeconds(5))).isEmpty()) {
                for (ConsumerRecord<String, String> each : records) {
                    seen++;
                    if ("java".equals(each.key())) {
                        own = each.value();
                    }
                }
            }
        }
        System.out.println(seen + " records, one of them: " + own);
    }
}
