//! Command line -> config -> app; nothing else.

fn main() -> std::process::ExitCode {
    lazaret::cli::main()
}
