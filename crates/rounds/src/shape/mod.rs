//! The ways to write a handler: what authors import.

mod ask;
mod round;

pub use ask::{Answer, Ask, Asking};
pub use round::{Asks, Given, Round};
