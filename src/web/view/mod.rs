//! How values look on pages: numbers and times, hostile text made visible, JSON as a tree, sparklines.

pub mod format;
pub mod spark;
pub mod text;
pub mod tree;
