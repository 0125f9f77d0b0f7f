//! The ways to write a handler: what authors import.

mod round;

pub use round::{Asks, Given, Round};
