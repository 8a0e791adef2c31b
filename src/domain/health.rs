//! How healthy a DLQ is: what may be said from what was measured, unknown kept apart from zero.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Critical,
    Warning,
    NoData,
    Healthy,
    Muted,
}
impl Status {
    pub const ALL: [Status; 5] = [Status::Critical, Status::Warning, Status::NoData, Status::Healthy, Status::Muted];
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Critical => "critical",
            Status::Warning => "warning",
            Status::Healthy => "healthy",
            Status::NoData => "no_data",
            Status::Muted => "muted",
        }
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtRisk {
    AllStored,
    AtRisk { left_ms: i64 },
    NotPermitted,
    Unlimited,
    Unknown,
}
impl AtRisk {
    pub fn from_stored(state: &str, left: Option<i64>) -> AtRisk {
        match (state, left) {
            ("all_stored", _) => AtRisk::AllStored,
            ("at_risk", Some(left_ms)) => AtRisk::AtRisk { left_ms },
            ("not_permitted", _) => AtRisk::NotPermitted,
            ("unlimited", _) => AtRisk::Unlimited,
            _ => AtRisk::Unknown,
        }
    }
    pub fn as_str(self) -> &'static str {
        match self {
            AtRisk::AllStored => "all_stored",
            AtRisk::AtRisk { .. } => "at_risk",
            AtRisk::NotPermitted => "not_permitted",
            AtRisk::Unlimited => "unlimited",
            AtRisk::Unknown => "unknown",
        }
    }
}
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub fresh: bool,
    pub depth: i64,
    pub oldest_age_ms: Option<i64>,
    pub at_risk: AtRisk,
    pub arrivals_per_min: Option<f64>,
}
pub fn status(m: &Measured) -> Status {
    if !m.fresh {
        Status::NoData
    } else if m.depth > 100 {
        Status::Critical
    } else if m.depth > 0 {
        Status::Warning
    } else {
        Status::Healthy
    }
}
pub fn worst_first(a: &Measured, b: &Measured) -> std::cmp::Ordering {
    status(a).cmp(&status(b)).then(b.depth.cmp(&a.depth))
}
