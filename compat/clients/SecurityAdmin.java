// Kafka's own Admin client on access rules, SCRAM credentials and quotas: what it makes, describes and
// removes, and which exceptions it gets. Prints a line for each thing that it saw, in one order.
// Run as: java -cp JARS SecurityAdmin.java ADDRESS

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;

public final class SecurityAdmin {
  private static final int TRIES = 300;
  private static Admin admin;

  public static void main(String[] words) throws Exception {
    admin = Admin.create(Map.of("bootstrap.servers", words[0]));
    try {
      rules();
      users();
      quotas();
    } finally {
      admin.close();
    }
  }

  private static void rules() throws Exception {
    List<AclBinding> made = List.of(
        rule(ResourceType.TOPIC, "ja-t", PatternType.LITERAL, "User:a", AclOperation.READ),
        rule(ResourceType.TOPIC, "ja-", PatternType.PREFIXED, "User:*", AclOperation.DESCRIBE),
        rule(ResourceType.GROUP, "ja-g", PatternType.LITERAL, "User:b", AclOperation.ALL));
    for (AclBinding each : made) {
      say("make", () -> admin.createAcls(List.of(each)).all());
    }
    say("make again", () -> admin.createAcls(made).all());
    say("odd", () -> admin.createAcls(List.of(rule(ResourceType.TOPIC, "ja-t",
        PatternType.LITERAL, "User:a", AclOperation.CLUSTER_ACTION))).all());
    say("no principal", () -> admin.createAcls(List.of(rule(ResourceType.TOPIC, "ja-t",
        PatternType.LITERAL, "nobody", AclOperation.READ))).all());
    AclBindingFilter named = filter("ja-t", PatternType.MATCH, null);
    until(() -> admin.describeAcls(filter("ja-g", PatternType.LITERAL, null)).values().get().size() == 1);
    for (PatternType type : List.of(PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH,
        PatternType.ANY)) {
      sayAll("describe " + type, () -> admin.describeAcls(filter("ja-t", type, null)).values());
    }
    sayAll("describe of a", () -> admin.describeAcls(filter(null, PatternType.ANY, "User:a")).values());
    sayAll("remove", () -> admin.deleteAcls(List.of(named)).all());
    until(() -> admin.describeAcls(named).values().get().isEmpty());
    sayAll("remove again", () -> admin.deleteAcls(List.of(named)).all());
    sayAll("remove the rest", () -> admin.deleteAcls(List.of(filter("ja-g", PatternType.ANY, null))).all());
  }

  private static AclBinding rule(ResourceType type, String name, PatternType pattern, String who,
      AclOperation operation) {
    return new AclBinding(new ResourcePattern(type, name, pattern),
        new AccessControlEntry(who, "*", operation, AclPermissionType.ALLOW));
  }

  private static AclBindingFilter filter(String name, PatternType pattern, String who) {
    return new AclBindingFilter(new ResourcePatternFilter(ResourceType.ANY, name, pattern),
        new AccessControlEntryFilter(who, null, AclOperation.ANY, AclPermissionType.ANY));
  }

  private static void users() throws Exception {
    ScramCredentialInfo few = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
    ScramCredentialInfo many = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192);
    // Kafka 4.1 takes one mechanism of a user in a request; Anabranch takes both.
    alter("set", new UserScramCredentialUpsertion("ja-u", few, "one"),
        new UserScramCredentialUpsertion("ja-v", few, "three"));
    alter("set the other", new UserScramCredentialUpsertion("ja-u", many, "two"));
    alter("twice", new UserScramCredentialUpsertion("ja-u", few, "one"),
        new UserScramCredentialDeletion("ja-u", ScramMechanism.SCRAM_SHA_256));
    alter("too few", new UserScramCredentialUpsertion("ja-w",
        new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10), "x"));
    alter("too many", new UserScramCredentialUpsertion("ja-w",
        new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 20_000), "x"));
    alter("no name", new UserScramCredentialUpsertion("", few, "x"));
    alter("unknown", new UserScramCredentialDeletion("ja-w", ScramMechanism.SCRAM_SHA_256));
    until(() -> admin.describeUserScramCredentials(List.of("ja-v")).all().get().size() == 1);
    describe("ja-u");
    describe("ja-v");
    describe("ja-w");
    alter("remove", new UserScramCredentialDeletion("ja-u", ScramMechanism.SCRAM_SHA_256),
        new UserScramCredentialDeletion("ja-v", ScramMechanism.SCRAM_SHA_256));
    until(() -> !admin.describeUserScramCredentials().users().get().contains("ja-v"));
    describe("ja-u");
    alter("remove the rest", new UserScramCredentialDeletion("ja-u", ScramMechanism.SCRAM_SHA_512));
  }

  private static void alter(String what, UserScramCredentialAlteration... changes) {
    Map<String, KafkaFuture<Void>> results = admin.alterUserScramCredentials(List.of(changes)).values();
    new TreeMap<>(results).forEach((user, result) -> say(what + " " + user, () -> result));
  }

  private static void describe(String user) {
    say("describe " + user, () -> admin.describeUserScramCredentials(List.of(user)).description(user)
        .thenApply(each -> each.credentialInfos().stream().map(Object::toString).sorted().toList()));
  }

  private static void quotas() throws Exception {
    quota("user", Map.of("user", "ja-u"), "producer_byte_rate", 1024.0);
    quota("both", Map.of("user", "ja-u", "client-id", "c"), "request_percentage", 12.5);
    quota("address", Map.of("ip", "10.1.2.3"), "connection_creation_rate", 3.0);
    quota("fraction", Map.of("user", "ja-u"), "consumer_byte_rate", 0.5);
    quota("nothing", Map.of("user", "ja-u"), "consumer_byte_rate", 0.0);
    quota("unknown key", Map.of("user", "ja-u"), "no_such_rate", 1.0);
    quota("wrong key", Map.of("ip", "10.1.2.3"), "producer_byte_rate", 1.0);
    quota("wrong address", Map.of("ip", "1.2.3.4.5"), "connection_creation_rate", 1.0);
    quota("wrong pair", Map.of("ip", "10.1.2.3", "user", "ja-u"), "producer_byte_rate", 1.0);
    ClientQuotaFilterComponent user = ClientQuotaFilterComponent.ofEntity("user", "ja-u");
    until(() -> admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(user))).entities()
        .get().size() == 2);
    sayQuotas("contains", ClientQuotaFilter.contains(List.of(user)));
    sayQuotas("only", ClientQuotaFilter.containsOnly(List.of(user)));
    sayQuotas("any client", ClientQuotaFilter.contains(
        List.of(ClientQuotaFilterComponent.ofEntityType("client-id"), user)));
    sayQuotas("addresses", ClientQuotaFilter.contains(
        List.of(ClientQuotaFilterComponent.ofEntity("ip", "10.1.2.3"))));
    sayQuotas("default", ClientQuotaFilter.contains(
        List.of(ClientQuotaFilterComponent.ofDefaultEntity("user"))));
    sayQuotas("unknown type", ClientQuotaFilter.contains(
        List.of(ClientQuotaFilterComponent.ofEntityType("planet"))));
    quota("remove", Map.of("user", "ja-u"), "producer_byte_rate", null);
    quota("remove", Map.of("user", "ja-u", "client-id", "c"), "request_percentage", null);
    quota("remove", Map.of("ip", "10.1.2.3"), "connection_creation_rate", null);
    quota("remove again", Map.of("ip", "10.1.2.3"), "connection_creation_rate", null);
  }

  private static void quota(String what, Map<String, String> entity, String key, Double value) {
    say(what + " " + key, () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
        new ClientQuotaEntity(entity), List.of(new ClientQuotaAlteration.Op(key, value))))).all());
  }

  private static void sayQuotas(String what, ClientQuotaFilter filter) {
    try {
      Map<String, String> found = new TreeMap<>();
      admin.describeClientQuotas(filter).entities().get().forEach((entity, values) ->
          found.put(new TreeMap<>(entity.entries()).toString(), new TreeMap<>(values).toString()));
      System.out.println("quotas " + what + ": " + found);
    } catch (Exception fault) {
      complain("quotas " + what, fault);
    }
  }

  private static void sayAll(String what,
      Callable<? extends KafkaFuture<? extends Collection<?>>> ask) {
    try {
      List<String> lines = new ArrayList<>();
      ask.call().get().forEach(each -> lines.add(each.toString()));
      lines.sort(null);
      System.out.println(what + ": " + lines);
    } catch (Exception fault) {
      complain(what, fault);
    }
  }

  private static void say(String what, Callable<? extends KafkaFuture<?>> ask) {
    try {
      System.out.println(what + ": " + ask.call().get());
    } catch (Exception fault) {
      complain(what, fault);
    }
  }

  private static void complain(String what, Exception fault) {
    Throwable why = fault instanceof ExecutionException ? fault.getCause() : fault;
    System.out.println(what + ": " + why.getClass().getSimpleName() + ": " + why.getMessage());
  }

  private static void until(Callable<Boolean> is) throws Exception {
    for (int left = TRIES; left > 0; left--) {
      try {
        if (is.call()) {
          return;
        }
      } catch (ExecutionException fault) {
        // not there yet
      }
      Thread.sleep(100);
    }
    throw new IllegalStateException("it does not come");
  }
}
