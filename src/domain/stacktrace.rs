//! Where the root cause was thrown: the frame that a person would look at first, in the stack traces of Java, Python, Node, .NET and Go.

use super::record::clip;

/// A frame is cut to this many bytes.
const FRAME_LIMIT: usize = 300;
/// Lines longer than this are no frames.
const LINE_LIMIT: usize = 2_000;

/// The first frame of the root cause, without what changes from build to build (line numbers, generated names): `com.acme.Billing.charge`.
pub fn top_frame(stacktrace: &str) -> Option<String> {
    let frame = python(stacktrace).or_else(|| go(stacktrace)).or_else(|| at_lines(stacktrace))?;
    let frame = without_generated_names(&frame);
    (!frame.is_empty()).then(|| cut(frame))
}

/// The class that the trace names as the root cause: what follows the last "Caused by:" (Java) or "[cause]:" (Node).
pub fn root_cause(stacktrace: &str) -> Option<&str> {
    class_at_start(last_cause(stacktrace)?)
}

/// The class of the root cause, or of the only exception, which the trace begins with.
pub fn root_exception(stacktrace: &str) -> Option<&str> {
    class_at_start(last_cause(stacktrace).unwrap_or(stacktrace))
}

fn class_at_start(text: &str) -> Option<&str> {
    let class = text.trim_start().lines().next()?.split(':').next()?.trim();
    is_class_name(class).then_some(class)
}

/// Whether a text looks like a class and not like a sentence: one word with a dot or a capital in it.
pub(super) fn is_class_name(text: &str) -> bool {
    let is_word = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '$' | '/' | '`' | '+');
    (3..=FRAME_LIMIT).contains(&text.len()) && text.chars().all(is_word) && text.chars().any(|char| char.is_ascii_uppercase())
}

/// What follows the last "Caused by:" or Node's "[cause]:".
fn last_cause(trace: &str) -> Option<&str> {
    let after = |marker: &str| trace.rfind(marker).map(|at| at + marker.len());
    let at = after("Caused by: ").max(after("[cause]: "))?;
    Some(&trace[at..])
}

fn lines(trace: &str) -> impl Iterator<Item = &str> {
    trace.lines().map(str::trim).filter(|line| line.len() <= LINE_LIMIT)
}

/// Java, Node and .NET: lines that begin with "at ". Java's root cause is the last "Caused by:"; .NET writes the innermost exception first.
fn at_lines(trace: &str) -> Option<String> {
    let first = |part| lines(part).find_map(at_line);
    last_cause(trace).and_then(first).or_else(|| first(trace))
}

fn at_line(line: &str) -> Option<String> {
    let frame = line.strip_prefix("at ")?.trim_start_matches("async ").trim();
    let Some((name, place)) = frame.split_once('(') else {
        // Node without a function: a place alone. .NET without arguments does not exist.
        return is_place(frame).then(|| file_of(frame).to_owned());
    };
    let is_node = name.ends_with(' ') && is_place(place.trim_end_matches(')'));
    let name = name.trim();
    if name.is_empty() || name.contains(' ') && !is_node {
        return None;
    }
    if is_node {
        return Some(format!("{name} ({})", file_of(place)));
    }
    // Java's module or class loader: "java.base/java.net.Socket.connect".
    Some(name.rsplit('/').next().unwrap_or(name).to_owned())
}

/// Whether a text ends in ":line:column".
fn is_place(text: &str) -> bool {
    let is_number = |part: Option<&str>| part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let mut parts = text.rsplit(':');
    is_number(parts.next()) && is_number(parts.next()) && parts.next().is_some()
}

/// The file's name alone: its folder differs from host to host.
fn file_of(place: &str) -> &str {
    let path = place.trim_end_matches(|char: char| char.is_ascii_digit() || matches!(char, ':' | ')'));
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Python: the innermost call stands last; with "raise .. from ..", the root cause's trace stands first.
fn python(trace: &str) -> Option<String> {
    if !trace.contains("File \"") {
        return None;
    }
    const DIRECT_CAUSE: &str = "The above exception was the direct cause of";
    let root = trace.split(DIRECT_CAUSE).next().unwrap_or(trace);
    let line = root.lines().rev().map(str::trim).find(|line| line.starts_with("File \"") && line.len() <= LINE_LIMIT)?;
    let (path, rest) = line.strip_prefix("File \"")?.split_once('"')?;
    let function = rest.split_once(", in ")?.1.trim();
    Some(format!("{function} ({})", path.rsplit(['/', '\\']).next().unwrap_or(path)))
}

/// Go: a line with the function, then an indented one with file and line. The runtime's own frames come first after a panic.
fn go(trace: &str) -> Option<String> {
    if !trace.contains(".go:") {
        return None;
    }
    let mut previous = "";
    for line in trace.lines() {
        let is_place = line.starts_with(['\t', ' ']) && line.contains(".go:");
        if is_place && is_own_go_frame(previous) {
            let name = previous.strip_suffix(')').and_then(|call| call.rfind('(').map(|open| &call[..open])).unwrap_or(previous);
            return Some(name.rsplit('/').next().unwrap_or(name).to_owned());
        }
        previous = line.trim();
    }
    None
}

fn is_own_go_frame(line: &str) -> bool {
    let is_runtime = ["panic(", "runtime.", "runtime/", "created by ", "goroutine "].iter().any(|prefix| line.starts_with(prefix));
    !line.is_empty() && line.len() <= LINE_LIMIT && !is_runtime && line.contains('.')
}

/// Generated names differ from start to start: `$Proxy123`, `$$EnhancerBySpringCGLIB$$1a2b3c4d`, `lambda$charge$3`.
fn without_generated_names(frame: &str) -> String {
    let mut out = String::with_capacity(frame.len());
    for (at, part) in frame.split('$').enumerate() {
        if at == 0 {
            out.push_str(part);
            continue;
        }
        out.push('$');
        let (name, rest) = part.split_at(part.find(['.', ' ']).unwrap_or(part.len()));
        if name.len() >= 6 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            out.push_str("<id>");
        } else {
            let stem = name.trim_end_matches(|char: char| char.is_ascii_digit());
            out.push_str(stem);
            if stem.len() < name.len() {
                out.push_str("<n>");
            }
        }
        out.push_str(rest);
    }
    out
}

fn cut(frame: String) -> String {
    if frame.len() <= FRAME_LIMIT { frame } else { format!("{}…", clip(&frame, FRAME_LIMIT)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(trace: &str) -> Option<String> {
        top_frame(trace)
    }

    #[test]
    fn java_takes_the_root_cause() {
        let trace = "org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed\n\
            \tat org.springframework.kafka.X.y(X.java:10)\n\
            Caused by: com.acme.WalletException: no\n\tat com.acme.Wallet.debit(Wallet.java:88)\n\t... 12 more\n\
            Caused by: java.net.SocketTimeoutException: connect timed out\n\
            \tat java.base/java.net.Socket.connect(Socket.java:633)\n\tat com.acme.Http.call(Http.java:5)\n\t... 30 more\n";
        assert_eq!(frame(trace).as_deref(), Some("java.net.Socket.connect"));
        assert_eq!(root_exception(trace), Some("java.net.SocketTimeoutException"));
        assert_eq!(frame("at com.acme.Topology.process(Topology.java:88)").as_deref(), Some("com.acme.Topology.process"));
        assert_eq!(
            frame("at com.acme.A$$EnhancerBySpringCGLIB$$1a2b3c4d.lambda$charge$3(<generated>)").as_deref(),
            Some("com.acme.A$$EnhancerBySpringCGLIB$$<id>.lambda$charge$<n>")
        );
    }

    #[test]
    fn line_numbers_and_restarts_make_no_new_frame() {
        assert_eq!(frame("at a.B.c(B.java:1)"), frame("at a.B.c(B.java:2)"));
        assert_eq!(frame("at jdk.proxy2.$Proxy123.call(Unknown Source)"), frame("at jdk.proxy2.$Proxy7.call(Unknown Source)"));
    }

    #[test]
    fn python_takes_the_innermost_call_of_the_root_cause() {
        let trace = "Traceback (most recent call last):\n  File \"/app/main.py\", line 3, in consume\n    handle(m)\n  \
            File \"/app/wallet/debit.py\", line 40, in debit\n    raise X\npsycopg2.OperationalError: server closed\n\n\
            The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  \
            File \"/app/main.py\", line 9, in outer\n    pass\nRuntimeError: failed\n";
        assert_eq!(frame(trace).as_deref(), Some("debit (debit.py)"));
    }

    #[test]
    fn node_names_function_and_file() {
        let trace = "TypeError: Cannot read properties of undefined (reading 'id')\n    at async Wallet.debit (/app/src/wallet.js:10:5)\n    at run (node:internal/x:1:2)";
        assert_eq!(frame(trace).as_deref(), Some("Wallet.debit (wallet.js)"));
        assert_eq!(frame("Error: x\n    at file:///app/src/main.mjs:3:1").as_deref(), Some("main.mjs"));
        let caused = "Error: outer\n    at a (/x/a.js:1:1) {\n  [cause]: Error: inner\n      at b (/x/b.js:2:2)\n}";
        assert_eq!(frame(caused).as_deref(), Some("b (b.js)"));
    }

    #[test]
    fn dotnet_writes_the_innermost_exception_first() {
        let trace = "System.Exception: outer\n ---> System.TimeoutException: inner\n   at Acme.Wallet.Debit(Guid id, Decimal amount) in /src/Wallet.cs:line 42\n   \
            --- End of inner exception stack trace ---\n   at Acme.Consumer.Run()";
        assert_eq!(frame(trace).as_deref(), Some("Acme.Wallet.Debit"));
    }

    #[test]
    fn go_skips_the_runtime() {
        let trace = "panic: runtime error: index out of range [3]\n\ngoroutine 18 [running]:\nruntime/debug.Stack()\n\t/usr/lib/go/debug.go:24 +0x5e\n\
            panic({0x4a0, 0xc})\n\t/usr/lib/go/panic.go:770 +0x132\ngithub.com/acme/wallet.(*Handler).Debit(0xc000, 0x1)\n\t/src/handler.go:88 +0x1d\n";
        assert_eq!(frame(trace).as_deref(), Some("wallet.(*Handler).Debit"));
        assert_eq!(frame("boom\nmain.load\n\t/src/main.go:12\nmain.main\n\t/src/main.go:3").as_deref(), Some("main.load"));
    }

    #[test]
    fn no_trace_no_frame() {
        for text in ["", "connection refused", "at the end of the day (maybe)", "File \"x", "\tx.go:1", "at ", "at (", "at ()"] {
            assert_eq!(frame(text), None, "{text:?}");
        }
        assert_eq!(root_exception("it failed: badly"), None);
        assert_eq!(root_exception(""), None);
    }
}
