import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** What Kafka's own classes find on the target of a mirror: BOOTSTRAP, the source's ALIAS, GROUP. */
public class MirrorReader {
    static final Duration LIMIT = Duration.ofSeconds(30);

    public static void main(String[] words) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", words[0]);
        String alias = words[1], group = words[2];
        try (MirrorClient client = new MirrorClient(config)) {
            say("hops", client.replicationHops(alias));
            say("upstream", new TreeSet<>(client.upstreamClusters()));
            say("heartbeats", new TreeSet<>(client.heartbeatTopics()));
            say("checkpoints", new TreeSet<>(client.checkpointTopics()));
            say("topics", new TreeSet<>(client.remoteTopics(alias)));
            say("offsets", sorted(client.remoteConsumerOffsets(group, alias, LIMIT)));
        }
        say("translated", sorted(RemoteClusterUtils.translateOffsets(config, alias, group, LIMIT)));
    }

    static TreeMap<String, String> sorted(Map<?, ?> found) {
        TreeMap<String, String> lines = new TreeMap<>();
        found.forEach((place, offset) -> lines.put(place.toString(), offset.toString()));
        return lines;
    }

    static void say(String name, Object value) {
        System.out.println(name + ": " + value);
    }
}
