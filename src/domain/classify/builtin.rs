//! The built-in class rules, as tables: exception names of Java, Python, Node, .NET and Go, and what error texts say.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::super::record::clip;
use super::FailureClass;
use super::FailureClass::{Authorization, Bug, Business, Deserialization, Schema, Size, Transient, Validation};

/// Names that say enough, for Transient by language (Java, Python, Node, .NET, Go). A name with dots must be the end of the exception's full
/// name; one without, its last part. The longer one wins.
const EXCEPTIONS: &[(FailureClass, &str)] = &[
    (
        Transient,
        "SocketTimeoutException ConnectException SocketException UnknownHostException NoRouteToHostException
         ClosedChannelException PrematureCloseException SQLTransientException SQLTransientConnectionException
         SQLRecoverableException CannotAcquireLockException DeadlockLoserDataAccessException PessimisticLockingFailureException
         OptimisticLockingFailureException ObjectOptimisticLockingFailureException OptimisticLockException
         StaleObjectStateException CannotGetJdbcConnectionException CannotCreateTransactionException
         DataAccessResourceFailureException JDBCConnectionException TransientDataAccessResourceException
         RedisConnectionFailureException ResourceAccessException WebClientRequestException HttpServerErrorException
         ServiceUnavailable BadGateway GatewayTimeout TooManyRequests CallNotPermittedException RetriableException
         RetryableException NotLeaderOrFollowerException DisconnectException NetworkException RejectedExecutionException
         TransactionTimedOutException ProvisionedThroughputExceededException StatusRuntimeException",
    ),
    (
        Transient,
        "OperationalError InterfaceError TimeoutError ConnectionError ConnectionRefusedError ConnectionResetError BrokenPipeError
         ReadTimeout ConnectTimeout ConnectError DeadlockDetected SerializationFailure ServerDisconnectedError socket.timeout
         socket.gaierror",
    ),
    (
        Transient,
        "MongoNetworkError MongoServerSelectionError FetchError AbortError SequelizeConnectionError KafkaJSConnectionError
         KafkaJSRequestTimeoutError PrismaClientInitializationError ETIMEDOUT ECONNREFUSED ECONNRESET",
    ),
    (
        Transient,
        "HttpRequestException Sockets.SocketException TaskCanceledException OperationCanceledException NpgsqlException
         DbUpdateConcurrencyException BrokerUnreachableException RedisTimeoutException BrokenCircuitException",
    ),
    (Transient, "net.OpError net.DNSError url.Error deadlineExceededError DeadlineExceeded"),
    (
        Deserialization,
        "JsonParseException JsonMappingException MismatchedInputException InvalidFormatException UnrecognizedPropertyException
         JsonProcessingException JsonEOFException JsonSyntaxException MalformedJsonException SerializationException
         MessageConversionException connect.errors.DataException InvalidProtocolBufferException MalformedInputException
         CharacterCodingException StreamCorruptedException HttpMessageNotReadableException JSONDecodeError UnicodeDecodeError
         google.protobuf.message.DecodeError UnpicklingError SyntaxError JsonException JsonReaderException
         JsonSerializationException XmlException UnmarshalTypeError InvalidUnmarshalError",
    ),
    (
        Schema,
        "AvroTypeException AvroMissingFieldException SchemaParseException SchemaProjectorException SchemaBuilderException
         IncompatibleSchemaException UnresolvedUnionException SchemaResolutionException SchemaRegistryException
         schemaregistry.client.rest.exceptions.RestClientException SchemaRegistryError SchemaException",
    ),
    (
        Validation,
        "ConstraintViolationException MethodArgumentNotValidException validation.BindException ZodError DateTimeParseException
         SequelizeValidationError ValidationErrors PropertyValueException",
    ),
    (
        Business,
        "hibernate.exception.ConstraintViolationException DuplicateKeyException DataIntegrityViolationException
         SQLIntegrityConstraintViolationException EmptyResultDataAccessException EntityNotFoundException ObjectNotFoundException
         BusinessException DomainException BusinessRuleException InsufficientFundsException InsufficientFundsError
         UniqueViolation ForeignKeyViolation CheckViolation IntegrityError DoesNotExist SequelizeUniqueConstraintError
         DbUpdateException",
    ),
    (
        Authorization,
        "SecurityException BadCredentialsException InsufficientAuthenticationException Unauthorized Forbidden
         InvalidTokenException UnauthorizedAccessException AuthenticationFailed PermissionError PermissionDenied
         InsufficientPrivilege TokenExpiredError JsonWebTokenError AccessDenied",
    ),
    (
        Size,
        "RecordTooLargeException RecordBatchTooLargeException MaxUploadSizeExceededException DataBufferLimitException
         TooLongFrameException PayloadTooLargeError RequestEntityTooLarge MessageSizeTooLargeError MSG_SIZE_TOO_LARGE",
    ),
    (
        Bug,
        "NullPointerException ClassCastException IndexOutOfBoundsException ArrayIndexOutOfBoundsException
         StringIndexOutOfBoundsException NoSuchElementException ArithmeticException UnsupportedOperationException
         ConcurrentModificationException StackOverflowError NoSuchMethodError NoClassDefFoundError ClassNotFoundException
         LazyInitializationException AssertionError FileNotFoundException NegativeArraySizeException ArrayStoreException
         TypeError AttributeError NameError UnboundLocalError IndexError KeyError ZeroDivisionError NotImplementedError
         RecursionError ImportError ModuleNotFoundError ReferenceError RangeError ERR_ASSERTION NullReferenceException
         IndexOutOfRangeException InvalidCastException KeyNotFoundException NotImplementedException NotSupportedException
         DivideByZeroException ArgumentNullException MissingMethodException boundsError runtime.Error runtime.errorString
         TypeAssertionError",
    ),
];

/// What a name ends in, for the exceptions that people make themselves. The first match wins.
const ENDINGS: &[(&str, FailureClass)] = &[
    ("TooLargeException", Size),
    ("TooLargeError", Size),
    ("ValidationException", Validation),
    ("ValidationError", Validation),
    ("DeserializationException", Deserialization),
    ("DeserializationError", Deserialization),
    ("SerializationError", Deserialization),
    ("DecodeException", Deserialization),
    ("DecodeError", Deserialization),
    ("DecodingError", Deserialization),
    ("ParseException", Deserialization),
    ("ParseError", Deserialization),
    ("AuthorizationException", Authorization),
    ("AuthenticationException", Authorization),
    ("AuthorizationError", Authorization),
    ("AuthenticationError", Authorization),
    ("AccessDeniedException", Authorization),
    ("UnauthorizedException", Authorization),
    ("UnauthorizedError", Authorization),
    ("ForbiddenException", Authorization),
    ("ForbiddenError", Authorization),
    ("AlreadyExistsException", Business),
    ("AlreadyExistsError", Business),
    ("NotFoundException", Business),
    ("ConflictException", Business),
    ("TimeoutException", Transient),
    ("TimeoutError", Transient),
    ("UnavailableException", Transient),
    ("UnavailableError", Transient),
    ("ConnectionException", Transient),
    ("ConnectionError", Transient),
    ("ConnectException", Transient),
    ("ThrottlingException", Transient),
    ("ThrottledException", Transient),
];

/// Names that say little by themselves: the error text is heard first.
const VAGUE: &[(FailureClass, &str)] = &[
    (Transient, "IOException InterruptedException OSError SQLException SqlException AxiosError EOFException DataAccessException"),
    (Validation, "IllegalArgumentException NumberFormatException ArgumentException FormatException ValueError"),
    (Bug, "IllegalStateException InvalidOperationException LookupError"),
];

/// What error texts say: (kind, what a person calls it, regular expression). The first match in this order wins: an unreachable schema registry is
/// an outage and no schema mismatch.
const TEXTS: &[(FailureClass, &str, &str)] = &[
    (Bug, "panic", r"\bpanic: |runtime error:"),
    (Bug, "null dereference", r"nil pointer dereference|null pointer|object reference not set to an instance|'NoneType' object"),
    (Bug, "undefined property", r"cannot read propert(y|ies) of (undefined|null)|undefined is not|is not a function\b"),
    (Bug, "index out of range", r"index (was )?out of (range|bounds)|list index out of range"),
    (Bug, "arithmetic", r"division by zero|divide by zero"),
    (Bug, "empty sequence", r"sequence contains (no|more than one) (matching )?elements?"),
    (Transient, "timeout", r"\btime[ds]?[ -]?out\b|\bdeadline exceeded|ETIMEDOUT|ESOCKETTIMEDOUT"),
    (
        Transient,
        "connection",
        r"connection (was )?(refused|reset|closed|aborted|lost|terminated)|ECONNREFUSED|ECONNRESET|EPIPE\b|broken pipe|socket hang up",
    ),
    (
        Transient,
        "connection",
        r"closed the connection|no route to host|EHOSTUNREACH|ENETUNREACH|network is unreachable|transport is closing",
    ),
    (Transient, "name resolution", r"EAI_AGAIN|ENOTFOUND|no such host|name or service not known|temporary failure in name resolution"),
    (
        Transient,
        "unavailable",
        r"service unavailable|temporarily unavailable|bad gateway|try again later|code = (unavailable|aborted|resourceexhausted)",
    ),
    (Transient, "rate limit", r"too many (requests|connections)|rate limit|throttl|connection pool"),
    (Transient, "circuit breaker", r"circuit ?breaker\b.*\bopen"),
    (Transient, "lock", r"\bdeadlock|lock wait timeout|could not serialize access|could not obtain lock"),
    (Transient, "database restart", r"the database system is (starting|shutting|in recovery)|terminating connection"),
    (Transient, "HTTP status", r"\b(status|http|code|error)\b[^0-9\n]{0,16}\b(429|502|503|504)\b"),
    (
        Size,
        "too large",
        r"(message|record|request|payload|entity|body|frame) (is |was )?(size )?too large|larger than the max|message\.max\.bytes|max\.request\.size",
    ),
    (Size, "HTTP status", r"\b(status|http|code|error)\b[^0-9\n]{0,16}\b413\b"),
    (
        Authorization,
        "access denied",
        r"access (is |was )?denied|accessdenied|permission denied|permissiondenied|insufficient privilege|not authori[sz]ed",
    ),
    (
        Authorization,
        "unauthorized",
        r"\bunauthori[sz]ed\b|\bforbidden\b|unauthenticated|authentication failed|invalid (credentials|api key|token)|token (has )?expired",
    ),
    (Authorization, "HTTP status", r"\b(status|http|code|error)\b[^0-9\n]{0,16}\b(401|403)\b"),
    (
        Schema,
        "schema",
        r"schema (mismatch|not found|is incompatible|being registered is incompatible)|incompatible schema|(subject|schema) not found",
    ),
    (Schema, "Avro", r"\bavro\b.{0,80}\b(expecting|missing|incompatible)|missing required field \w+$"),
    (
        Deserialization,
        "JSON",
        r"unexpected (token|character|end of json input|end-of-input)|cannot unmarshal|invalid character .{1,12} (looking for|after|in)",
    ),
    (Deserialization, "JSON", r"expecting value: line|unrecognized token|malformed json|invalid json|json parse error|not valid json"),
    (Deserialization, "magic byte", r"unknown magic byte"),
    (Deserialization, "decoding", r"(cannot|could not|can't|failed to|error|unable to) (deseriali[sz]|decod|unmarshal|pars)"),
    (Deserialization, "encoding", r"invalid utf-?8|malformed (utf|input)|codec can't decode|proto: |invalid wire type"),
    (Business, "constraint", r"(unique|foreign key|check) constraint|duplicate (key|entry)"),
    (
        Business,
        "business rule",
        r"insufficient (funds|balance|stock|credit)|already (exists|processed|paid|shipped|cancell?ed|refunded|closed)",
    ),
    (
        Validation,
        "validation",
        r"validation (failed|error)|failed validation|must (not )?be (null|blank|empty|positive|greater|less)|is required\b|missing required",
    ),
    (Validation, "validation", r"code = (invalidargument|failedprecondition|outofrange)|invalid (value|argument|format|input)\b"),
];

/// No more of a message than this is searched.
const TEXT_LIMIT: usize = 4 * 1024;

/// Names by their last part, so that one look-up finds the few that may match.
type Names = HashMap<&'static str, Vec<(&'static str, FailureClass)>>;

static BY_NAME: LazyLock<Names> = LazyLock::new(|| names(EXCEPTIONS));
static BY_VAGUE_NAME: LazyLock<Names> = LazyLock::new(|| names(VAGUE));
static BY_TEXT: LazyLock<RegexSet> = LazyLock::new(|| {
    let patterns = TEXTS.iter().map(|(_, _, pattern)| pattern);
    RegexSetBuilder::new(patterns).case_insensitive(true).unicode(false).build().expect("the table's own patterns are tested")
});

fn names(table: &'static [(FailureClass, &'static str)]) -> Names {
    let mut names = Names::new();
    for (class, entries) in table {
        for entry in entries.split_whitespace() {
            names.entry(last_part(entry)).or_default().push((entry, *class));
        }
    }
    for entries in names.values_mut() {
        entries.sort_by_key(|(entry, _)| std::cmp::Reverse(entry.len()));
    }
    names
}

/// `java.net.ConnectException`, `Outer$Inner`, `*net.OpError`, `Ns.Outer+Inner`, `crate::Error`.
fn last_part(name: &str) -> &str {
    name.rsplit(['.', '$', '+', ':', '*', '/']).next().unwrap_or(name)
}

fn look_up(names: &Names, exception: &str) -> Option<(FailureClass, &'static str)> {
    let entries = names.get(last_part(exception))?;
    let is_end_of = |entry: &str| {
        let before = exception.strip_suffix(entry)?;
        (before.is_empty() || !before.ends_with(|char: char| char.is_ascii_alphanumeric() || char == '_')).then_some(())
    };
    entries.iter().find(|(entry, _)| is_end_of(entry).is_some()).map(|(entry, class)| (*class, *entry))
}

/// By an exception's name: (kind, the rule in words).
pub(super) fn by_exception(exception: &str) -> Option<(FailureClass, &'static str)> {
    let exception = exception.trim();
    look_up(&BY_NAME, exception)
        .or_else(|| {
            // Spring and others nest: `HttpServerErrorException$ServiceUnavailable` is named in the table, `..$Other` falls back to its outer class.
            let outer = exception.rsplit_once(['$', '+']).map(|(outer, _)| outer)?;
            look_up(&BY_NAME, outer)
        })
        .or_else(|| {
            let name = last_part(exception);
            ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(ending, class)| (*class, *ending))
        })
}

/// By a name that says little.
pub(super) fn by_vague_exception(exception: &str) -> Option<(FailureClass, &'static str)> {
    look_up(&BY_VAGUE_NAME, exception.trim())
}

/// By what the error text says: (kind, the rule in words).
pub(super) fn by_message(message: &str) -> Option<(FailureClass, &'static str)> {
    let first = BY_TEXT.matches(clip(message, TEXT_LIMIT).as_bytes()).iter().next()?;
    let (class, words, _) = TEXTS[first];
    Some((class, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_no_name_stands_twice() {
        assert_eq!(BY_TEXT.len(), TEXTS.len());
        let mut seen: Vec<&str> = EXCEPTIONS.iter().chain(VAGUE).flat_map(|(_, names)| names.split_whitespace()).collect();
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all, "a name in two rows has two answers");
    }

    #[test]
    fn the_longer_name_wins_and_parts_of_words_do_not_match() {
        assert_eq!(by_exception("org.hibernate.exception.ConstraintViolationException").unwrap().0, Business);
        assert_eq!(by_exception("jakarta.validation.ConstraintViolationException").unwrap().0, Validation);
        assert_eq!(by_exception("com.acme.MyTypeError"), None);
        assert_eq!(by_exception("com.acme.DataException"), None);
        assert_eq!(by_exception("org.springframework.web.client.HttpServerErrorException$Teapot").unwrap().1, "HttpServerErrorException");
    }
}
