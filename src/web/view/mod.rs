//! How values look on pages: numbers and times, hostile text made visible, sparklines.

pub mod format;
pub mod spark;
pub mod text;
