//! Where a configuration comes from: a named file, flags, or `lazaret.toml`.

use std::path::Path;

use super::args::Source;
use super::{Failure, environment};
use crate::config::{Config, Flags, Purpose};

/// Taken without being named, if it is there.
const DEFAULT_FILE: &str = "lazaret.toml";

/// The named file, or the default one if it exists.
pub fn file(named: Option<&Path>) -> Option<&Path> {
    let default = Path::new(DEFAULT_FILE);
    named.or_else(|| default.exists().then_some(default))
}

/// A configuration, and the flags it was made of, if it was.
pub struct Read {
    pub config: Config,
    pub flags: Option<Flags>,
}

/// Reads what `source` names. `command` is for the remedy: "serve" or "check".
pub fn read(source: &Source, purpose: Purpose, command: &str) -> Result<Read, Failure> {
    let environment = environment()?;
    if let Some(bootstrap) = &source.bootstrap {
        if source.dlq.is_empty() && purpose == Purpose::Serve {
            return Err(Failure::Usage(
                r"--dlq is missing: there is nothing to watch. Add --dlq '\.(DLQ|DLT)$', a regular expression on topic names.".to_owned(),
            ));
        }
        let flags = Flags {
            bootstrap: bootstrap.clone(),
            dlq: source.dlq.clone(),
            start: source.start.clone(),
            properties: pairs("--property", &source.property)?,
            property_files: pairs("--property-file", &source.property_file)?,
        };
        return Ok(Read { config: Config::from_flags(&flags, environment, purpose)?, flags: Some(flags) });
    }
    let Some(file) = file(source.config.as_deref()) else {
        return Err(Failure::Usage(format!(
            r"no configuration: name one, `lazaret {command} --config lazaret.toml`, or a cluster, `lazaret {command} --bootstrap kafka:9092 --dlq '\.(DLQ|DLT)$'`."
        )));
    };
    Ok(Read { config: Config::load(file, environment, purpose)?, flags: None })
}

/// Parsed here and not by clap, which would repeat a wrong value: it may be a password typed in the wrong place.
fn pairs(flag: &str, texts: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::Usage(format!("{flag}: is not of the form NAME=VALUE. Write it like {flag} security.protocol=SASL_SSL."))),
    };
    texts.iter().map(pair).collect()
}
