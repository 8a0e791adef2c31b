//! Pages and API over a real store: what they say, what they refuse, and that hostile bytes stay inert.

mod access;
pub mod hostile;
pub mod house;
mod reading;
