// Reads sets of ACLs from standard input, one JSON object a line, and answers each with what Apache
// Kafka's own StandardAuthorizer decides and lists.
//
// In: "super" and "open" are its two settings; "acls" are lists of resource type, pattern type, name,
// principal, host, operation and permission; "asked" are lists of principal, host, operation, resource
// type and name, where null asks for any resource of the type; "filters" are as ACLs. Out: "allowed" has
// a character for each question, "found" the sorted places in "acls" of what each filter finds.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Authorizer {
    private record Context(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public int requestType() {
            return 3;
        }

        public int requestVersion() {
            return 0;
        }

        public String clientId() {
            return "";
        }

        public int correlationId() {
            return 0;
        }
    }

    private static StandardAcl acl(JsonNode fields) {
        return new StandardAcl(
            ResourceType.fromCode((byte) fields.get(0).asInt()),
            fields.get(2).asText(),
            PatternType.fromCode((byte) fields.get(1).asInt()),
            fields.get(3).asText(),
            fields.get(4).asText(),
            AclOperation.fromCode((byte) fields.get(5).asInt()),
            AclPermissionType.fromCode((byte) fields.get(6).asInt()));
    }

    private static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private static AclBindingFilter filter(JsonNode fields) {
        return new AclBindingFilter(
            new ResourcePatternFilter(
                ResourceType.fromCode((byte) fields.get(0).asInt()),
                text(fields.get(2)),
                PatternType.fromCode((byte) fields.get(1).asInt())),
            new AccessControlEntryFilter(
                text(fields.get(3)),
                text(fields.get(4)),
                AclOperation.fromCode((byte) fields.get(5).asInt()),
                AclPermissionType.fromCode((byte) fields.get(6).asInt())));
    }

    private static boolean isAllowed(StandardAuthorizer authorizer, JsonNode asked) throws Exception {
        Context context = new Context(
            SecurityUtils.parseKafkaPrincipal(asked.get(0).asText()),
            InetAddress.getByName(asked.get(1).asText()));
        AclOperation operation = AclOperation.fromCode((byte) asked.get(2).asInt());
        ResourceType type = ResourceType.fromCode((byte) asked.get(3).asInt());
        if (asked.get(4).isNull()) {
            return authorizer.authorizeByResourceType(context, operation, type)
                == AuthorizationResult.ALLOWED;
        }
        ResourcePattern resource =
            new ResourcePattern(type, asked.get(4).asText(), PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, false, false)))
            .get(0) == AuthorizationResult.ALLOWED;
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode world = mapper.readTree(line);
            StandardAuthorizer authorizer = new StandardAuthorizer();
            authorizer.configure(Map.of(
                "super.users", world.get("super").asText(),
                "allow.everyone.if.no.acl.found", world.get("open").asText(),
                "node.id", "1"));
            authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
            Map<AclBinding, Integer> places = new HashMap<>();
            Map<Uuid, StandardAcl> acls = new HashMap<>();
            for (JsonNode fields : world.get("acls")) {
                StandardAcl made = acl(fields);
                places.put(made.toBinding(), places.size());
                acls.put(new Uuid(1, places.size()), made);
            }
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            StringBuilder allowed = new StringBuilder();
            for (JsonNode asked : world.get("asked")) {
                allowed.append(isAllowed(authorizer, asked) ? '1' : '0');
            }
            ObjectNode answer = mapper.createObjectNode();
            answer.put("allowed", allowed.toString());
            ArrayNode found = answer.putArray("found");
            for (JsonNode fields : world.get("filters")) {
                TreeSet<Integer> matching = new TreeSet<>();
                for (AclBinding binding : authorizer.acls(filter(fields))) {
                    matching.add(places.get(binding));
                }
                ArrayNode list = found.addArray();
                new ArrayList<>(matching).forEach(list::add);
            }
            System.out.println(mapper.writeValueAsString(answer));
        }
    }
}
