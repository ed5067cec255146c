//! What the tests share; each of them uses a part.

#![allow(dead_code)]

mod draws;
pub mod kinds;
#[path = "../random/mod.rs"]
pub mod random;
pub mod runs;
