import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/**
 * Asks Kafka's own StripedReplicaPlacer for replica lists: one line of JSON comes in for each,
 * {"seed", "partitions", "factor", "brokers": [[id, rack or null, fenced]]}, and one goes out,
 * {"rows"} or {"error"}, with "nanos" for what the placer itself took. With "rounds" the same is
 * placed so many times with seeds that follow each other, and the answer has "nanos" of each alone.
 */
public final class Placements {
    private record Cluster(List<UsableBroker> brokers) implements ClusterDescriber {
        @Override
        public Iterator<UsableBroker> usableBrokers() {
            return brokers.iterator();
        }

        @Override
        public Uuid defaultDir(int brokerId) {
            return Uuid.ZERO_UUID;
        }
    }

    public static void main(String[] words) throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(mapper.writeValueAsString(answer(mapper, mapper.readTree(line))));
        }
    }

    private static ObjectNode answer(ObjectMapper mapper, JsonNode asked) {
        ObjectNode answer = mapper.createObjectNode();
        ArrayNode nanos = answer.putArray("nanos");
        int rounds = asked.path("rounds").asInt(0);
        for (int round = 0; round < Math.max(1, rounds); round++) {
            long begin = System.nanoTime();
            List<PartitionAssignment> made;
            try {
                made = placed(asked, asked.get("seed").asLong() + round);
            } catch (InvalidReplicationFactorException refused) {
                return answer.put("error", refused.getMessage());
            }
            nanos.add(System.nanoTime() - begin);
            if (rounds == 0) {
                ArrayNode rows = answer.putArray("rows");
                made.forEach(each -> each.replicas().forEach(rows.addArray()::add));
            }
        }
        return answer;
    }

    private static List<PartitionAssignment> placed(JsonNode asked, long seed) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode each : asked.get("brokers")) {
            Optional<String> rack = Optional.ofNullable(each.get(1).textValue());
            brokers.add(new UsableBroker(each.get(0).asInt(), rack, each.get(2).asBoolean()));
        }
        PlacementSpec wanted = new PlacementSpec(
            0, asked.get("partitions").asInt(), (short) asked.get("factor").asInt());
        return new StripedReplicaPlacer(new Random(seed)).place(wanted, new Cluster(brokers))
            .assignments();
    }
}
