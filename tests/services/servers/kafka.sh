# shellcheck shell=bash
# Kafka; part of `../ctl`.

# ports: plaintext, SASL, SASL over TLS, OAUTHBEARER, controller

kafka_tool() { "$home/kafka/tool" "$@"; }

# Maven is asked once; afterwards the answer holds until the pom changes or a jar is gone.
kafka_classpath() {
  local file=$home/kafka/target/classpath jar said
  local -a jars
  if [[ -s $file && $file -nt $home/kafka/pom.xml ]]; then
    IFS=: read -ra jars <"$file" || true # Maven ends the file without a newline
    for jar in "${jars[@]}"; do [[ -s $jar ]] || break; done
    [[ ! -s $jar ]] || return 0
  fi
  say "fetching Kafka with Maven"
  mkdir -p "${file%/*}"
  # Written beside and renamed: a `tool` that runs at this moment sees the old file or the new one.
  said=$(mvn --batch-mode --quiet --file "$home/kafka/pom.xml" dependency:build-classpath "-Dmdep.outputFile=$file.$$" </dev/null 2>&1) || {
    printf '%s\n' "$said" >&2
    die "Maven could not fetch Kafka"
  }
  mv "$file.$$" "$file"
}

# An authority and a certificate for 127.0.0.1, for the TLS listener; only the authority's certificate is for clients.
kafka_certificates() {
  local dir=$state/kafka/tls
  [[ ! -s $dir/ca.pem || ! -s $dir/broker.pem ]] || return 0
  rm -rf "$dir"
  mkdir -p "$dir"
  (
    cd "$dir"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj '/CN=Lazaret test authority' \
      -addext 'keyUsage=critical,keyCertSign,cRLSign' -keyout ca.key -out ca.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=127.0.0.1' -keyout broker.key -out broker.csr
    printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n' >broker.ext
    openssl x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile broker.ext -out broker.crt
    cat broker.key broker.crt ca.pem >broker.pem
  ) >>"$state/kafka/log" 2>&1 || die "openssl could not make the broker's certificate; see $state/kafka/log"
}

kafka_properties() {
  local login='org.apache.kafka.common.security'
  cat <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${ports[4]}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:${ports[0]},SASL://127.0.0.1:${ports[1]},SASLSSL://127.0.0.1:${ports[2]},OAUTH://127.0.0.1:${ports[3]},CONTROLLER://127.0.0.1:${ports[4]}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SASLSSL:SASL_SSL,OAUTH:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$state/kafka/data

# Who may do what: everything on the plaintext listener and for admin; else what the ACLs say.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin
# (Debian's kcat cannot do SCRAM here: Kafka 4 checks the nonce, and librdkafka sent a wrong one before 2.6.1.)
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=$login.plain.PlainLoginModule required user_admin="$admin_password" user_restricted="$restricted_password";
listener.name.sasl.scram-sha-256.sasl.jaas.config=$login.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=$login.scram.ScramLoginModule required;
listener.name.saslssl.plain.sasl.jaas.config=$login.plain.PlainLoginModule required user_admin="$admin_password" user_restricted="$restricted_password";
listener.name.saslssl.scram-sha-256.sasl.jaas.config=$login.scram.ScramLoginModule required;
listener.name.saslssl.scram-sha-512.sasl.jaas.config=$login.scram.ScramLoginModule required;
listener.name.saslssl.ssl.keystore.type=PEM
listener.name.saslssl.ssl.keystore.location=$state/kafka/tls/broker.pem
# Kafka's validator for unsecured tokens (RFC 7515, alg "none"): a test can write its own token; "sub" names the user.
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config=$login.oauthbearer.OAuthBearerLoginModule required;
listener.name.oauth.oauthbearer.sasl.server.callback.handler.class=$login.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler

# One node: every internal topic has one replica. Few partitions of them: each costs start-up time.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1

# On, so that a test can prove that we do not make topics by asking for them.
auto.create.topics.enable=true
num.partitions=1
message.max.bytes=33554432

# Tests wait for these; a real cluster has minutes.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.retention.check.interval.ms=1000
# (the first look comes only 30 s after the start by default)
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=1000
log.cleaner.backoff.ms=500
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000

# Small: two cores and one user. The cleaner would take 128 MiB of the heap by default.
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=16777216
PROPERTIES
}

kafka_prepare() { kafka_classpath; }

kafka_start() {
  kafka_certificates
  take_ports kafka 5
  kafka_properties >"$state/kafka/server.properties"
  if [[ ! -s $state/kafka/data/meta.properties ]]; then
    local -a users=()
    local mechanism
    for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
      users+=(--add-scram "$mechanism=[name=admin,password=$admin_password]")
      users+=(--add-scram "$mechanism=[name=restricted,password=$restricted_password]")
    done
    # A format that was interrupted must not pass for a finished one.
    rm -rf "$state/kafka/data" "$state/kafka/acls"
    kafka_tool kafka.tools.StorageTool format --config "$state/kafka/server.properties" \
      --cluster-id "$(openssl rand 16 | base64 | tr '+/' '-_' | tr -d '=')" "${users[@]}" >>"$state/kafka/log" 2>&1 ||
      die "Kafka's storage could not be formatted; see $state/kafka/log"
  fi
  # A partition needs three files or so, and tests make thousands of partitions.
  ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"
  (( $(ulimit -n) >= 16384 )) || say "only $(ulimit -n) open files are allowed here; tests with thousands of partitions may fail"
  launch kafka java -Xms256m -Xmx768m -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Dlazaret.version.level=info \
    -Dlog4j2.configurationFile="file:$home/kafka/log4j2.properties" -cp "$(<"$home/kafka/target/classpath")" \
    kafka.Kafka "$state/kafka/server.properties"
}

kafka_answers() {
  local pid port answer
  pid=$(live_pid kafka) || return 1
  read_ports kafka
  for port in "${ports[@]}"; do listens "$pid" "$port" || return 1; done
  # No topic is named: asking for one would create it.
  answer=$(timeout 5 kcat -L -b "127.0.0.1:${ports[0]}" -m 4 2>/dev/null) || return 1
  [[ $answer == *"127.0.0.1:${ports[0]}"* ]] || return 1
}

# What `restricted` may do: find and read topics named allowed.*, in groups named lazaret*. Not DescribeConfigs, so that
# retention is "not permitted".
kafka_finish() {
  [[ ! -e $state/kafka/acls ]] || return 0
  read_ports kafka
  kafka_tool org.apache.kafka.tools.AclCommand --bootstrap-server "127.0.0.1:${ports[0]}" --add \
    --allow-principal User:restricted --resource-pattern-type prefixed --topic allowed. --group lazaret \
    --operation Describe --operation Read >>"$state/kafka/log" 2>&1 || return 1
  touch "$state/kafka/acls"
}

kafka_env() {
  put LAZARET_TEST_KAFKA "127.0.0.1:${ports[0]}"
  put LAZARET_TEST_KAFKA_SASL "127.0.0.1:${ports[1]}"
  put LAZARET_TEST_KAFKA_SASL_SSL "127.0.0.1:${ports[2]}"
  put LAZARET_TEST_KAFKA_OAUTH "127.0.0.1:${ports[3]}"
  put LAZARET_TEST_KAFKA_CA "$state/kafka/tls/ca.pem"
  put LAZARET_TEST_KAFKA_USER admin
  put LAZARET_TEST_KAFKA_PASSWORD "$admin_password"
  put LAZARET_TEST_KAFKA_RESTRICTED_USER restricted
  put LAZARET_TEST_KAFKA_RESTRICTED_PASSWORD "$restricted_password"
  put LAZARET_TEST_KAFKA_TOOLS "$home/kafka/tool"
  put LAZARET_TEST_KCAT "$(command -v kcat)"
}

# A broker does not tell its version to clients, only the level of its metadata; its version it writes as it starts.
kafka_version() {
  local version level
  version=$(sed -n 's/.*AppInfoParser: Kafka version: //p' "$state/kafka/log" | tail -n 1)
  level=$(kafka_tool org.apache.kafka.tools.FeatureCommand --bootstrap-server "127.0.0.1:${ports[0]}" describe 2>/dev/null |
    sed -n 's/.*metadata.version.*FinalizedVersionLevel: \([^[:space:]]*\).*/\1/p')
  [[ -n $version && -n $level ]] && echo "Apache Kafka $version (metadata.version $level)"
}
