//! The ways to write a handler: what authors import.

mod ask;
mod prompt;
mod round;

pub use ask::{Answer, Ask, Asking};
pub use prompt::PromptResponse;
pub use round::{Asks, Given, Round};
