//! The ways to write a handler: what authors import.

mod ask;
mod durable;
mod prompt;
mod round;

pub use ask::{Answer, Ask, Asking};
pub use durable::{Durable, Together, durable, durable_prompt};
pub use prompt::PromptResponse;
pub use round::{Asks, Given, Round};
