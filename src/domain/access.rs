//! Who may do what: roles, and the owners whose DLQs a user acts on.

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;

/// What a user or a token may do. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Reviews and proposes.
    Operator,
    /// An operator who may approve what others proposed.
    Approver,
    Admin,
}

impl Role {
    /// The word used in the command line, the database and the pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Approver => "approver",
            Role::Admin => "admin",
        }
    }
}

/// "role" is none of the four.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown role {0:?}: use viewer, operator, approver or admin")]
pub struct UnknownRole(pub String);

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Role, UnknownRole> {
        [Role::Viewer, Role::Operator, Role::Approver, Role::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// The owners whose DLQs someone acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerScope {
    All,
    Listed(Vec<String>),
}

impl OwnerScope {
    /// Whether a DLQ of this owner lies in the scope. A DLQ without an owner lies only in [`OwnerScope::All`].
    pub fn covers(&self, owner: Option<&str>) -> bool {
        match self {
            OwnerScope::All => true,
            OwnerScope::Listed(owners) => owner.is_some_and(|owner| owners.iter().any(|o| o == owner)),
        }
    }

    /// As stored and typed: `*` for all, else a comma-separated list.
    pub fn to_text(&self) -> String {
        match self {
            OwnerScope::All => "*".to_owned(),
            OwnerScope::Listed(owners) => owners.join(","),
        }
    }

    /// The reverse of [`OwnerScope::to_text`]; blanks are ignored.
    pub fn from_text(text: &str) -> OwnerScope {
        if text.trim() == "*" {
            return OwnerScope::All;
        }
        let owners = text.split(',').map(str::trim).filter(|owner| !owner.is_empty());
        OwnerScope::Listed(owners.map(str::to_owned).collect())
    }
}

/// Who is asking: a signed-in user or an API token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Of the user; of a token with "token" in front, so that neither is taken for the other.
    pub name: String,
    pub role: Role,
    pub owners: OwnerScope,
}

/// What is left of a name when compatibility forms (NFKC) and letter case are taken away: two names that agree in it look like one
/// person's. Names decide who may approve what, so no two users' may.
pub fn look_of_name(name: &str) -> String {
    // Upper case first: it takes along what has several small letters, such as the final sigma and the long s.
    name.nfkc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfkc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_have_one_look() {
        for (a, b) in [
            ("Ana", "ana"),
            ("\u{ff21}\u{ff4e}\u{ff41}", "ana"),
            ("a\u{301}na", "\u{e1}na"),
            ("o\u{fb01}r", "OFIR"),
            ("\u{3a3}\u{3c2}", "\u{3c3}\u{3c3}"),
        ] {
            assert_eq!(look_of_name(a), look_of_name(b), "{a} and {b}");
        }
        assert_ne!(look_of_name("ana"), look_of_name("\u{e1}na"));
    }
}
