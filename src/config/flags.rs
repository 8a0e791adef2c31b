//! A configuration without a file: the few flags that a first look at a cluster needs.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// What is said on the command line in place of a file. It becomes one cluster, `main`, and one `[[dlq]]` for each pattern.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub bootstrap: String,
    /// Regular expressions on topic names.
    pub dlq: Vec<String>,
    pub start: Option<String>,
    /// librdkafka properties.
    pub properties: Vec<(String, String)>,
    /// librdkafka properties whose values are in files.
    pub property_files: Vec<(String, String)>,
}

impl Flags {
    /// The same as a TOML table, and under which flag each key was given.
    pub(super) fn as_table(&self) -> (Table, BTreeMap<String, String>) {
        let mut given_as = BTreeMap::new();
        let mut cluster = Table::new();
        cluster.insert("bootstrap_servers".to_owned(), Value::String(self.bootstrap.clone()));
        given_as.insert("clusters.main.bootstrap_servers".to_owned(), "--bootstrap".to_owned());
        for (table, pairs, flag) in
            [("properties", &self.properties, "--property"), ("properties_file", &self.property_files, "--property-file")]
        {
            let values = pairs.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
            cluster.insert(table.to_owned(), Value::Table(values));
            for (name, _) in pairs {
                given_as.insert(format!("clusters.main.{table}.{}", super::reader::quoted(name)), flag.to_owned());
            }
        }
        let mut dlqs = Vec::with_capacity(self.dlq.len());
        for (index, pattern) in self.dlq.iter().enumerate() {
            let mut dlq = Table::new();
            dlq.insert("cluster".to_owned(), Value::String("main".to_owned()));
            dlq.insert("pattern".to_owned(), Value::String(pattern.clone()));
            given_as.insert(format!("dlq[{index}].pattern"), "--dlq".to_owned());
            if let Some(start) = &self.start {
                dlq.insert("start".to_owned(), Value::String(start.clone()));
                given_as.insert(format!("dlq[{index}].start"), "--start".to_owned());
            }
            dlqs.push(Value::Table(dlq));
        }
        let clusters = Table::from_iter([("main".to_owned(), Value::Table(cluster))]);
        let mut table = Table::from_iter([("clusters".to_owned(), Value::Table(clusters))]);
        // Without one the section stays absent, so that whoever needs it says so.
        if !dlqs.is_empty() {
            table.insert("dlq".to_owned(), Value::Array(dlqs));
        }
        (table, given_as)
    }
}
