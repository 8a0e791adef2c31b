//! How values look on pages: numbers and times, hostile text made visible, JSON as a tree, sparklines and charts.

pub mod chart;
pub mod diff;
pub mod format;
pub mod spark;
pub mod success;
pub mod text;
pub mod tree;
