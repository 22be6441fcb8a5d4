import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;

/**
 * Kafka's admin client on a topic whose third broker never came: what creation answers, what
 * partitions look like after one was added, and that a replica without a broker is an empty node.
 * Arguments: bootstrap servers, topic.
 */
public final class MissingReplicas {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(settings)) {
            NewTopic topic = new NewTopic(words[1], Optional.of(1), Optional.of((short) 3));
            CreateTopicsResult made = admin.createTopics(List.of(topic));
            System.out.println("created with factor " + made.replicationFactor(words[1]).get());
            admin.createPartitions(Map.of(words[1], NewPartitions.increaseTo(2))).all().get();
            TopicDescription seen = admin.describeTopics(List.of(words[1])).allTopicNames().get()
                .get(words[1]);
            for (TopicPartitionInfo each : seen.partitions()) {
                List<Node> replicas = each.replicas();
                Node last = replicas.get(replicas.size() - 1);
                System.out.println(each.partition() + ": " + replicas.size() + " replicas, "
                    + each.isr().size() + " in sync, last " + last.id() + " empty "
                    + last.isEmpty() + ", led by a broker " + (each.leader().id() > 0));
            }
        }
    }
}
