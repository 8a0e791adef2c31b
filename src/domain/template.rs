//! Key templates: `{value:/json/pointer}`, `{header:name}`, `{key}` and literal text between them.

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    source: String,
}

impl KeyTemplate {
    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }
}
